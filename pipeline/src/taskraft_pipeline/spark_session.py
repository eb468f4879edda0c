"""Start Spark: in this process on all cores by default, or on a cluster.

On a cluster, this distribution must be installed in the Python environment of the executors.
``--py-files`` is not enough, because it does not reach the process that plans a stream. Executors
use the path of this Python, unless PYSPARK_PYTHON names another one, for example in a shipped
archive.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from taskraft.cli.stop_signals import StopSignals
from taskraft_pipeline import java
from taskraft_pipeline.doctor import examine_version
from taskraft_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

EMBEDDED: Final = "local[*,3]"
"""All cores, with three attempts per task; plain ``local[*]`` has only one."""
CONNECT: Final = "sc://"
"""Beginning of the address of a Spark Connect server."""
SHUFFLE_PARTITIONS: Final = 4
DRIVER_MEMORY: Final = "1g"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings that results depend on, and settings that reduce output."""
BRIEF_JVM: Final = ("-XX:TieredStopAtLevel=1",)
"""Options of the JVM for a short run: code is compiled once and not optimised, so a small export
takes a third less CPU time."""
ENDLESS_JVM: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Options of the JVM for an endless run: only code that runs ten times as often as by default is
optimised, which saves a fifth of the CPU time until the first batch."""
DESCRIPTION: Final = "spark.job.description"
"""Property of a thread that names its jobs."""
UNCAUGHT: Final = 'Exception in thread "main" '


class JavaMissing(PipelineError):
    """No Java that Spark can use was found."""


class SparkUnsuitable(PipelineError):
    """Spark has an unsupported version, or does not start with these settings."""


def check_installation(master: str) -> None:
    """Check that Spark can start, before anything is written.

    Raises:
        JavaMissing: Java is missing; the message says how to install it.
        SparkUnsuitable: PySpark has an unsupported version.
    """
    if not master.startswith(CONNECT) and not java.is_sufficient():
        raise JavaMissing(java.HINT)
    found = examine_version("pyspark")
    if not found.is_well:
        raise SparkUnsuitable(f"pyspark: {found.text}")


@contextlib.contextmanager
def spark_session(
    name: str,
    master: str = EMBEDDED,
    *,
    is_brief: bool = False,
    is_endless: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Run Spark for the duration of the context.

    A signal while Spark starts or stops takes effect afterwards.

    Args:
        name: name of the application.
        master: Spark master; "local..." runs in this process, "sc://host:port" is a Spark Connect
            server, which needs this distribution and its own Java.
        is_brief: optimise for a short run instead of high throughput.
        is_endless: optimise for an early first result of a run without end.
        settings: Spark settings that override all others.

    Raises:
        JavaMissing, SparkUnsuitable: see `check_installation`.
        SparkUnsuitable: Spark did not start.
    """
    check_installation(master)
    is_remote = master.startswith(CONNECT)
    scratch = Path(tempfile.mkdtemp(prefix="taskraft-spark-"))
    builder = SparkSession.builder.appName(name)
    builder = builder.remote(master) if is_remote else builder.master(master)
    # A Spark Connect server has its own settings; a session may set only those of SQL.
    chosen = {key: text for key, text in SETTINGS.items() if "sql" in key or not is_remote}
    if not master.startswith(("local", CONNECT)):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = str(worker_python())
        chosen |= embedded(scratch, is_brief=is_brief, is_endless=is_endless)
    chosen |= settings or {}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        with signals_deferred(), quiet(scratch / "stderr.txt"):
            if not is_remote:
                start_context({**chosen, "spark.app.name": name, "spark.master": master})
            spark = builder.getOrCreate()
            stack.callback(stop_session, spark)
        yield spark


def start_context(settings: Mapping[str, str]) -> None:
    """Start the JVM and the context of Spark, in a thread of its own.

    In the main thread, Spark would install a handler of SIGINT that calls the JVM in the middle of
    another call, and prints tracebacks.
    """
    conf = SparkConf().setAll(list(settings.items()))
    with ThreadPoolExecutor(1) as starter:
        starter.submit(SparkContext.getOrCreate, conf).result()


def stop_session(spark: SparkSession) -> None:
    """Stop Spark; signals take effect afterwards.

    A JVM that does not stop in order, which PySpark warns of, ends with this process.
    """
    with signals_deferred(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown", RuntimeWarning)
        spark.stop()


@contextlib.contextmanager
def cached(rows: DataFrame) -> Iterator[None]:
    """Let Spark compute the rows of a DataFrame once during the block.

    After a signal, the rows stay until Spark stops, because their removal would wait for the
    interrupted query.
    """
    rows.persist()
    try:
        yield
    except Exception:
        rows.unpersist()
        raise
    rows.unpersist()


@contextlib.contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Name the jobs of the block in Spark's web page; no effect over Spark Connect.

    Only jobs that this thread starts get the name.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty(DESCRIPTION)
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setJobDescription(before)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Let SIGINT and SIGTERM take effect after the block; no effect in other threads than main.

    An interrupted start would leave a JVM that never ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stop = StopSignals()
    try:
        with stop:
            yield
    finally:
        if stop.count:
            signal.raise_signal(stop.number)


def embedded(scratch: Path, *, is_brief: bool, is_endless: bool) -> dict[str, str]:
    """Return the settings for Spark in this process: little memory, loopback only."""
    logging = resources.files("taskraft_pipeline") / "log4j2.properties"
    java_options = [f"-Dlog4j2.configurationFile={logging}", "-XX:+UseSerialGC", "-Xshare:auto"]
    if is_brief:
        java_options += BRIEF_JVM
    elif is_endless:
        java_options += ENDLESS_JVM
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


@functools.cache
def worker_python() -> Path:
    """Return a program that starts this Python with the search path of this process.

    Spark would put an archive of PySpark first in the search path. Python would then compile every
    module again in each of about six processes, at 0.7 s of CPU time each.

    The program stays until this process ends, because the JVM stays too: a later session gets the
    path of the program from the JVM.
    """
    folder = Path(tempfile.mkdtemp(prefix="taskraft-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = folder / "python"
    search_path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={search_path} exec {shlex.quote(sys.executable)} "$@"\n'
    )
    program.chmod(0o700)
    return program


@contextlib.contextmanager
def quiet(place: Path) -> Iterator[None]:
    """Redirect stderr into a file while Spark starts.

    This is the only way to hide a JVM warning about required modules. The JVM keeps the file as its
    stderr.

    Raises:
        SparkUnsuitable: Spark did not start; the message is the first line of its output.
    """
    sys.stderr.flush()
    with contextlib.ExitStack() as stack:
        original = os.dup(2)
        stack.callback(os.close, original)
        with place.open("wb") as file:
            os.dup2(file.fileno(), 2)
        try:
            yield
        except PySparkException as error:
            cause = first_error(place.read_text(errors="replace")) or str(error)
            raise SparkUnsuitable(f"Spark did not start: {cause}") from error
        finally:
            os.dup2(original, 2)


def first_error(output: str) -> str:
    """Return why Spark did not start, from its output; empty if the output does not say why.

    The reason is the uncaught exception, else the first line that is no warning.
    """
    lines = [line.strip() for line in output.splitlines()]
    uncaught = [line.removeprefix(UNCAUGHT) for line in lines if line.startswith(UNCAUGHT)]
    others = [line for line in lines if line and "WARN" not in line]
    return next(iter((*uncaught, *others)), "")
