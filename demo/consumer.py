"""Be one of the consumers: take files, examine them, acknowledge with the findings.

A process of its own (`python -m demo.consumer`), which knows the cluster only through the client.
It prints "ready" when it begins, works until SIGTERM, and writes one record per task.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from demo.corpus import examine
from demo.records import ACCEPTED, Record
from taskraft import Client
from taskraft.errors import TaskraftError

if TYPE_CHECKING:
    from types import FrameType

    from taskraft import TakenTask

TASKS_PER_TAKE: Final = 8
TAKE_WAIT: Final = "1s"
SETTLE_TIMEOUT: Final = "30s"
"""Longer than any fail-over: an outcome that stays unknown would be no finding."""


class Consumer:
    """Take, examine, acknowledge, record; until told to stop."""

    def __init__(self, name: str, tube: str, client: Client, records: TextIO) -> None:
        self._name: Final = name
        self._tube: Final = tube
        self._client: Final = client
        self._records: Final = records
        self._is_stopping = False

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """Finish what was taken, and take no more; a handler of signals."""
        self._is_stopping = True

    def work(self) -> None:
        """Work until stopped."""
        tube = self._client.tube(self._tube)
        while not self._is_stopping:
            tasks = tube.take_many(TASKS_PER_TAKE, wait=TAKE_WAIT)
            taken_ns = time.monotonic_ns()
            for task in tasks:
                self._process(task, taken_ns)

    def _process(self, task: TakenTask, taken_ns: int) -> None:
        path = task.text()
        findings = examine(Path(path))
        settled_ns, answer = time.monotonic_ns(), ACCEPTED
        try:
            task.ack(json.dumps(asdict(findings)), timeout=SETTLE_TIMEOUT)
        except TaskraftError as refused:
            answer = refused.reason
        record = Record(
            consumer=self._name,
            task_id=task.id,
            token=task.token,
            path=path,
            taken_ns=taken_ns,
            settled_ns=settled_ns,
            answer=answer,
            sha256=findings.sha256,
            lines=findings.lines,
        )
        self._records.write(record.to_json())


def main() -> None:
    """Work as the arguments say."""
    parser = argparse.ArgumentParser(description="Examine files until SIGTERM.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--target", required=True, help="addresses of the nodes, comma between")
    parser.add_argument("--tube", required=True)
    parser.add_argument("--records", required=True, type=Path, help="file to write")
    arguments = parser.parse_args()
    # A line is written at once: a consumer that is killed has told all it did.
    with (
        Client(arguments.target, name=arguments.name) as client,
        arguments.records.open("w", buffering=1) as records,
    ):
        consumer = Consumer(arguments.name, arguments.tube, client, records)
        signal.signal(signal.SIGTERM, consumer.stop)
        print("ready", flush=True)
        consumer.work()


if __name__ == "__main__":
    main()
