"""Export a journal in a separate process, which kills itself at a given step.

Usage: python -m tests.pipeline.exporter ENDPOINTS JOURNAL [before|after BATCH]

"before" kills the process after the files of the batch are written and before its manifest is
published; "after" kills it after the manifest is published and before Spark commits the batch.
"""

import os
import signal
import sys

from taskraft_pipeline.journal import batch_writer, export
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.options import parse
from taskraft_pipeline.spark_session import spark_session

BATCH_EVENTS = 1_200


def die():
    os.killpg(0, signal.SIGKILL)


def kill_at(step, batch):
    """Replace the function that publishes a batch with one that kills the process."""
    original = batch_writer.publish

    def publish(path, content):
        if step == "before" and content["batch"] == batch:
            die()
        original(path, content)
        if step == "after" and content["batch"] == batch:
            die()

    batch_writer.publish = publish


def main(endpoints, folder, step="", batch="-1"):
    kill_at(step, int(batch))
    options = {"endpoints": endpoints, "maxEventsPerTrigger": str(BATCH_EVENTS)}
    journal = Journal.at(folder)
    with journal.locked():
        export.prepare(journal, parse(options))
        with spark_session("exporter", "local[2,3]", is_brief=True) as spark:
            export.start(spark, journal, options).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
