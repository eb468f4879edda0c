"""Say in one line why Spark failed, and keep the whole text of unexpected failures in a file."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException

OWN_ERROR: Final = re.compile(r"taskraft_pipeline\.errors\.\w+: (.+)")
"""Matches an error of the data source inside Spark's traceback."""
MISSING_PACKAGE: Final = re.compile(r"No module named '(?:taskraft|pyspark_taskraft)")
NOT_INSTALLED: Final = (
    "the Python of the executors has no taskraft-pipeline; install the package there, or set"
    " PYSPARK_PYTHON to a Python that has the package (docs/pipeline.md has a recipe)"
)
JAVA_CAUSE: Final = re.compile(r"^Caused by: (.+)", re.MULTILINE)
PYTHON_ERROR: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
"""Matches the line with the exception at the end of a traceback of Python."""
LINE_LENGTH_MAX: Final = 400
"""Maximum length of a cause that is printed, in characters; the file has the whole text."""


def failure_text(error: Exception, folder: Path | None = None) -> str | None:
    """Return the reason of a Spark failure in one line; None for any other error.

    The text of a failure that is neither an error of this package nor of a query is written into a
    new file, which the line names.

    Args:
        error: the failure.
        folder: folder of the file; by default the folder for temporary files.
    """
    if not isinstance(error, (PySparkException, Py4JJavaError)):
        return None
    text = str(error)
    own = OWN_ERROR.findall(text)
    if own:
        return str(own[-1])
    if "DATA_SOURCE_NOT_FOUND" in text or MISSING_PACKAGE.search(text):
        return NOT_INSTALLED
    if isinstance(error, (AnalysisException, IllegalArgumentException)):
        return text.partition("\n")[0]
    with tempfile.NamedTemporaryFile(
        "w", prefix="taskraft-pipeline-", suffix=".txt", dir=folder, delete=False
    ) as file:
        file.write(text)
    return f"Spark failed: {cause(text)}; the whole text is in {file.name}"


def cause(text: str) -> str:
    """Return the root cause from the text of a failure, else its first line."""
    for pattern in (JAVA_CAUSE, PYTHON_ERROR):
        found = pattern.findall(text)
        if found:
            return str(found[-1])[:LINE_LENGTH_MAX]
    return text.strip().partition("\n")[0][:LINE_LENGTH_MAX]
