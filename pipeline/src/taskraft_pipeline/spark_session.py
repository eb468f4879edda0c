"""Start Spark: within this process on all cores by default, or on a cluster.

On a cluster this distribution must be installed in the Python of the executors (in their image, or
in an archive of the environment): ``--py-files`` does not reach the process that plans a stream.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from taskraft_pipeline import java
from taskraft_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EMBEDDED: Final = "local[*,3]"
"""All cores, and three tries per task, of which ``local[*]`` has only one."""
SHUFFLE_PARTITIONS: Final = 4
DRIVER_MEMORY: Final = "1g"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What results depend on, and quiet."""


class JavaMissing(PipelineError):
    """There is no Java that Spark could run on."""


@contextlib.contextmanager
def spark_session(
    name: str,
    master: str = EMBEDDED,
    *,
    is_brief: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Run Spark for as long as the context lasts.

    Args:
        name: of the application.
        master: where to; "local..." runs within this process.
        is_brief: start fast rather than run fast, for some seconds of work.
        settings: of Spark, over all others.

    Raises:
        JavaMissing: with the one line that says how to install it.
    """
    if not java.is_sufficient():
        raise JavaMissing(java.HINT)
    scratch = Path(tempfile.mkdtemp(prefix="taskraft-spark-"))
    builder = SparkSession.builder.appName(name).master(master)
    chosen = {**SETTINGS}
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = str(worker_python(scratch))
        chosen |= embedded(scratch, is_brief=is_brief)
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        with quiet(scratch / "stderr.txt"):
            spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def embedded(scratch: Path, *, is_brief: bool) -> dict[str, str]:
    """Return the settings for Spark within this process: small, and closed to the network."""
    logging = resources.files("taskraft_pipeline") / "log4j2.properties"
    java_options = [f"-Dlog4j2.configurationFile={logging}", "-XX:+UseSerialGC", "-Xshare:auto"]
    if is_brief:
        java_options.append("-XX:TieredStopAtLevel=1")
    return {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.artifact.isolation.enabled": "false",
    }


def worker_python(scratch: Path) -> Path:
    """Return a program that starts this Python for Spark with the search path of this process.

    Spark would put an archive of PySpark in front, from which Python compiles every module anew in
    each of half a dozen processes: 0.7 s of processor time each. It is installed here anyway.
    """
    program = scratch / "python"
    search_path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={search_path} exec {shlex.quote(sys.executable)} "$@"\n'
    )
    program.chmod(0o700)
    return program


@contextlib.contextmanager
def quiet(place: Path) -> Iterator[None]:
    """Send what is written to stderr into a file, shown if the context fails.

    The JVM prints a warning about modules that it needs, and can only be kept from it this way. It
    keeps the file as its stderr for as long as it lives.
    """
    sys.stderr.flush()
    with contextlib.ExitStack() as stack:
        original = os.dup(2)
        stack.callback(os.close, original)
        with place.open("wb") as file:
            os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(original, 2)
            sys.stderr.write(place.read_text(errors="replace"))
            raise
        os.dup2(original, 2)
