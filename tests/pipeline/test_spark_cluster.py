"""Run the commands on a Spark cluster with two workers, and on a Spark Connect server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from taskraft_pipeline import java
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.verify import verify
from taskraft_pipeline.spark_failures import NOT_INSTALLED
from tests.turns import blocked_until
from tools.free_addresses import free_addresses

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.skipif(not java.is_sufficient(), reason=java.HINT),
]

RUN_SECONDS_MAX = 150
SPARK = Path(pyspark.__file__).parent
ENTRYPOINT = Path(__file__).parents[2] / "pipeline" / "entrypoint.sh"
JAVA_OPTIONS = (
    *(
        f"--add-opens=java.base/{name}=ALL-UNNAMED"
        for name in (
            "java.lang",
            "java.nio",
            "java.util",
            "sun.nio.ch",
            "java.lang.invoke",
            "java.net",
            "java.util.concurrent",
            "sun.util.calendar",
        )
    ),
    "-Dspark.network.timeout=120s",
)
"""Options that Spark on Kubernetes gives each executor, among others."""


@contextmanager
def daemon(folder, ready, *command):
    """Run a Spark process until its log has a text."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if ready in line:
                    break
            else:
                pytest.fail("".join(lines))
            # A full pipe would stop the process.
            with subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL):
                yield
                os.killpg(process.pid, signal.SIGKILL)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def spark_class(name, *arguments):
    return [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.{name}", *arguments]


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """Return the address of a standalone master with two workers."""
    folder = tmp_path_factory.mktemp("standalone")
    (address,) = free_addresses(1)
    host, port = address.split(":")
    web = ["--webui-port", "0"]
    worker = ["--cores", "1", "--memory", "700m", *web, f"spark://{address}"]
    start = spark_class("deploy.master.Master", "--host", host, "--port", port, *web)
    with (
        daemon(folder, "New state: ALIVE", *start),
        daemon(folder, "registered with master", *spark_class("deploy.worker.Worker", *worker)),
        daemon(folder, "registered with master", *spark_class("deploy.worker.Worker", *worker)),
    ):
        yield f"spark://{address}"


def run(folder, *arguments, **variables):
    """Run a command of the pipeline; return its exit status and its output."""
    settings = ("spark.executor.memory=512m", "spark.driver.host=127.0.0.1")
    conf = [part for setting in settings for part in ("--conf", setting)]
    if "sc://" in str(arguments):
        conf = []
    done = subprocess.run(
        [sys.executable, "-m", "taskraft_pipeline", *arguments, *conf],
        cwd=folder,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **variables},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_journal_is_exported_by_two_workers(master, cluster, events, tmp_path):
    target, folder = cluster.endpoints, str(tmp_path / "journal")
    code, output = run(
        tmp_path, "export", "--journal", folder, "--target", target, "--master", master
    )
    assert code == 0, output
    verdict = verify(Journal.at(folder), is_deep=True)
    assert (verdict.problems, verdict.events) == ([], len(events))


def listens(address):
    """Return whether something accepts connections at an address."""
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


def test_an_executor_that_the_entry_point_of_the_image_starts_does_the_work(
    cluster, events, tmp_path
):
    """A master without workers gives the driver no executor, so the started one does all work."""
    master, driver = free_addresses(2)
    host, port = master.split(":")
    start = spark_class("deploy.master.Master", "--host", host, "--port", port, "--webui-port", "0")
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{driver}",
        "SPARK_EXECUTOR_ID": "0",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": host,
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "executor-0",
        **{f"SPARK_JAVA_OPT_{n}": text for n, text in enumerate(JAVA_OPTIONS)},
    }

    def start_executor():
        """Start the executor when the driver listens; return its process."""
        blocked_until(lambda: listens(driver))
        return subprocess.Popen(
            [str(ENTRYPOINT), "executor"],
            env={**os.environ, **variables},
            cwd=tmp_path,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    with (
        daemon(tmp_path, "New state: ALIVE", *start),
        ThreadPoolExecutor(1) as starter,
    ):
        started = starter.submit(start_executor)
        code, output = run(
            *(tmp_path, "report", "--target", cluster.endpoints, "--out", "report"),
            *("--master", f"spark://{master}"),
            *("--conf", f"spark.driver.port={driver.split(':')[1]}"),
        )
        with started.result() as executor:
            os.killpg(executor.pid, signal.SIGKILL)
    assert code == 0, output
    found = json.loads((tmp_path / "report" / "report.json").read_text())
    assert sum(part["events"] for part in found["parts"]) == len(events)


def test_an_executor_whose_python_lacks_the_package_gets_one_line(master, cluster, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o700)
    code, output = run(
        *(tmp_path, "report", "--target", cluster.endpoints, "--master", master),
        PYSPARK_PYTHON=str(bare),
    )
    assert code == 1
    assert output.splitlines()[-1] == f"Error: {NOT_INSTALLED}"
    assert "Traceback" not in output


@pytest.fixture(scope="module")
def connect(tmp_path_factory):
    """Return the address of a Spark Connect server."""
    (address,) = free_addresses(1)
    host, port = address.split(":")
    server = [
        *(str(SPARK / "bin" / "spark-submit"), "--master", "local[2]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--conf", f"spark.connect.grpc.binding.address={host}"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
        *("--name", "connect", "spark-internal"),
    ]
    with daemon(tmp_path_factory.mktemp("connect"), "Spark Connect server started", *server):
        yield f"sc://{address}"


def test_a_report_is_made_over_spark_connect(connect, cluster, events, tmp_path):
    code, output = run(
        *(tmp_path, "report", "--target", cluster.endpoints, "--out", "report"),
        *("--master", connect),
    )
    assert code == 0, output
    found = json.loads((tmp_path / "report" / "report.json").read_text())
    assert sum(part["events"] for part in found["parts"]) == len(events)


READ_WITH_PROGRESS = """
import sys, time
from taskraft_pipeline.query_progress import observed, told_progress
from taskraft_pipeline.spark_session import spark_session

master, endpoints, checkpoint, events = sys.argv[1:]
with spark_session("progress", master) as spark, told_progress(spark, print, 0) as listener:
    changes = spark.readStream.format("taskraft").option("endpoints", endpoints)
    rows = observed(changes.option("startingOffsets", "earliest").load())
    query = rows.writeStream.option("checkpointLocation", checkpoint).format("noop")
    query.trigger(availableNow=True).start().awaitTermination()
    while sum(one.events for one in listener.reports) < int(events):
        time.sleep(0.1)
    print("left", sum(listener.reports[-1].lags.values()))
    print("sized", all(one.bytes_per_second for one in listener.reports))
"""


def test_progress_is_told_over_spark_connect(connect, cluster, events, tmp_path):
    arguments = [connect, cluster.endpoints, str(tmp_path / "checkpoint"), str(len(events))]
    done = subprocess.run(
        [sys.executable, "-c", READ_WITH_PROGRESS, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[-2:] == ["left 0", "sized True"]
    assert "events/s" in told[0]
