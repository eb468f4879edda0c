"""Find the Java that Spark would start, and print advice if it is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Final

VERSION_MIN: Final = 17
HINT: Final = (
    f"Spark needs Java {VERSION_MIN} or later; install it (Debian, Ubuntu:"
    " apt install openjdk-17-jre-headless) or set JAVA_HOME."
)


def version() -> int:
    """Return the major version of the Java that Spark would start; 0 if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return 0
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - found above
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found.group(1)) if found else 0


def is_sufficient() -> bool:
    """Return whether Spark can start."""
    return version() >= VERSION_MIN
