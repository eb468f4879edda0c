"""Write tasks with a streaming query while its driver and the leader are killed; count the tasks.

Usage: python -m tests.pipeline.sink_kills [--tasks 1000000] [--driver-kills 6] [--leader-kills 3]

Every row of the source has another payload, so lost and repeated tasks are visible.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from taskraft import Client
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.options import Options
from taskraft_pipeline.sink.transaction import Transaction
from taskraft_pipeline.spark_session import spark_session
from tools.local_cluster import LocalCluster

TUBE = "orders"
APP = "kills"
STEP_SECONDS_MAX = 600
POLL_SECONDS = 0.05
PAUSE = threading.Event()
"""Never set."""


def write_source(folder, tasks, files):
    """Write the payloads of the tasks as text files; each file becomes one batch."""
    folder.mkdir(parents=True)
    for number in range(files):
        rows = range(tasks * number // files, tasks * (number + 1) // files)
        text = "".join(f"order {row}\n" for row in rows)
        (folder / f"{number:05d}.txt").write_text(text)


def start_query(spark, target, source, checkpoint):
    """Start the query that puts one task per line, one file per batch."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
    return (
        lines.withColumnRenamed("value", "payload")
        .writeStream.format("taskraft")
        .options(endpoints=target, tube=TUBE, txnAppId=APP)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def start_driver(target, source, checkpoint):
    """Run the query in a process group of its own."""
    command = [sys.executable, "-m", "tests.pipeline.sink_kills", "--drive"]
    return subprocess.Popen(
        [*command, target, str(source), str(checkpoint)], start_new_session=True
    )


def drive(target, source, checkpoint):
    """Run the query to its end."""
    with spark_session("sink", "local[2,3]", is_brief=True) as spark:
        start_query(spark, target, source, checkpoint).awaitTermination()


def wait_committed(driver, target, checkpoint, version):
    """Wait until the driver has committed a version."""
    options = Options(endpoints=tuple(target.split(",")))
    stop_at = time.monotonic() + STEP_SECONDS_MAX
    with FeedClient(options.endpoints, options) as client:
        while not Transaction(client, APP, version, query_id(checkpoint)).is_committed():
            assert time.monotonic() < stop_at, f"version {version} is not committed"
            assert driver.poll() is None, f"the driver has ended before version {version}"
            PAUSE.wait(POLL_SECONDS)


def query_id(checkpoint):
    """Return the id of the query of a checkpoint; empty before the query has started."""
    place = checkpoint / "metadata"
    try:
        return json.loads(place.read_text())["id"]
    except (FileNotFoundError, ValueError):
        return ""


def kill_driver(driver):
    """Kill the driver with Spark's processes."""
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def count_tasks(spark, target):
    """Return the numbers of READY tasks, of their payloads, of HELD tasks and of other tasks."""
    source = spark.read.format("taskraft").options(endpoints=target, read="tasks", tubes=TUBE)
    tasks = source.option("columns", "state,payload").load()
    return tasks.selectExpr(
        "count_if(state = 'ready')",
        "count(DISTINCT CASE WHEN state = 'ready' THEN payload END)",
        "count_if(state = 'held')",
        "count_if(state NOT IN ('ready', 'held'))",
    ).first()


def main():
    """Kill and count; exit with 1 if a task is lost or repeated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--driver-kills", type=int, default=6)
    parser.add_argument("--leader-kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drive", nargs=3)
    arguments = parser.parse_args()
    if arguments.drive:
        drive(*arguments.drive)
        return 0
    with tempfile.TemporaryDirectory(prefix="taskraft-sink-") as folder:
        return run(Path(folder), arguments)


def run(folder, arguments):
    """Return the exit status."""
    source, checkpoint = folder / "source", folder / "checkpoint"
    write_source(source, arguments.tasks, arguments.files)
    rng = random.Random(arguments.seed)
    kills = arguments.driver_kills
    with LocalCluster(3, folder / "nodes") as cluster, Client(cluster.target) as client:
        client.create_tube(TUBE)
        for number in range(max(kills, arguments.leader_kills)):
            driver = start_driver(cluster.target, source, checkpoint)
            version = arguments.files * number // (kills + 1)
            wait_committed(driver, cluster.target, checkpoint, version)
            PAUSE.wait(rng.random())  # the kill comes at a random moment
            if number < arguments.leader_kills:
                leader = cluster.wait_ready()
                leader.kill()
                leader.start()
            kill_driver(driver)
            print(f"{number + 1}: killed after version {version}", flush=True)
        driver = start_driver(cluster.target, source, checkpoint)
        assert driver.wait(STEP_SECONDS_MAX) == 0
        cluster.wait_ready()
        with spark_session("count", is_brief=True) as spark:
            ready, payloads, held, others = count_tasks(spark, cluster.target)
    print(
        f"{arguments.tasks} rows: {ready} READY tasks, {payloads} payloads, {others} other tasks;"
        f" {held} HELD tasks of killed attempts, until stageTtl"
    )
    return 0 if (ready, payloads, others) == (arguments.tasks, arguments.tasks, 0) else 1


if __name__ == "__main__":
    sys.exit(main())
