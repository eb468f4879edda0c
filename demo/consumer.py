"""A consumer process: take files, examine them, acknowledge with the findings.

The process (`python -m demo.consumer`) knows the cluster only through the client. It prints "ready"
when it starts, works until SIGTERM, and writes one record per delivery.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from demo.delivery_records import ACCEPTED, DeliveryRecord
from demo.source_files import examine
from taskraft import AsyncClient
from taskraft.errors import TaskraftError

if TYPE_CHECKING:
    from taskraft import AsyncTakenTask, AsyncTube

TASKS_PER_TAKE: Final = 16
TAKE_WAIT: Final = "500ms"
SETTLE_TIMEOUT: Final = "30s"
"""Time limit of a settlement; longer than any failover, so that no outcome stays unknown."""


class Consumer:
    """Takes, examines, acknowledges and records tasks until stopped."""

    def __init__(self, name: str, tube: AsyncTube, records: TextIO) -> None:
        self._name: Final = name
        self._tube: Final = tube
        self._records: Final = records
        self._is_stopping = False

    def stop(self) -> None:
        """Finish the taken tasks, and take no more."""
        self._is_stopping = True

    async def work(self) -> None:
        """Work until stopped."""
        while not self._is_stopping:
            tasks = await self._tube.take_many(TASKS_PER_TAKE, wait=TAKE_WAIT)
            taken_ns = time.monotonic_ns()
            # Each acknowledgement is its own call; the client sends them in one message.
            await asyncio.gather(*(self._process(task, taken_ns) for task in tasks))

    async def _process(self, task: AsyncTakenTask, taken_ns: int) -> None:
        path = task.text()
        findings = examine(Path(path))
        settled_ns, answer = time.monotonic_ns(), ACCEPTED
        try:
            await task.ack(json.dumps(asdict(findings)), timeout=SETTLE_TIMEOUT)
        except TaskraftError as refused:
            answer = refused.reason
        record = DeliveryRecord(
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


async def consume(arguments: argparse.Namespace) -> None:
    """Work until SIGTERM."""
    async with AsyncClient(arguments.target, name=arguments.name) as client:
        # Line buffering, so that the records of a killed consumer are complete.
        with arguments.records.open("w", buffering=1) as records:
            consumer = Consumer(arguments.name, client.tube(arguments.tube), records)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
            print("ready", flush=True)
            await consumer.work()


def main() -> None:
    """Parse the arguments, and process tasks until SIGTERM."""
    parser = argparse.ArgumentParser(description="Examine files until SIGTERM.")
    parser.add_argument("--name", required=True)
    parser.add_argument(
        "--target", required=True, help="addresses of the nodes, separated by commas"
    )
    parser.add_argument("--tube", required=True)
    parser.add_argument("--records", required=True, type=Path, help="file for the records")
    asyncio.run(consume(parser.parse_args()))


if __name__ == "__main__":
    main()
