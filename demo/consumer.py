"""A consumer process: a worker of `taskraft.worker` that examines files.

The process (`python -m demo.consumer`) knows the cluster only through the client. It prints "ready"
when it starts, works until SIGTERM, and writes one record per delivery.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TextIO

from demo.delivery_records import ACCEPTED, DeliveryRecord
from demo.source_files import Findings, examine
from taskraft import AsyncClient
from taskraft.errors import TaskraftError
from taskraft.worker import App, Context, Middleware

TUBE: Final = "files"
THREADS: Final = 16
TIMEOUT: Final = "30s"
"""Time limit of a settlement; longer than any failover, so that no outcome stays unknown."""

FAILING: Final = 50


class DeliveryRecorder(Middleware):
    """Records each delivery with the server's answer to its settlement."""

    def __init__(self) -> None:
        self._consumer = ""
        self._records: TextIO | None = None
        self._running: Final[dict[int, tuple[int, Findings]]] = {}

    def start(self, consumer: str, records: TextIO) -> None:
        """Write the records of this consumer from now on."""
        self._consumer, self._records = consumer, records

    async def run(self, ctx: Context, call_next: Callable[[], Awaitable[object]]) -> object:
        """Note when the handler begins, and its findings."""
        taken_ns = time.monotonic_ns()
        findings = await call_next()
        assert isinstance(findings, Findings)
        self._running[ctx.token] = taken_ns, findings
        return findings

    async def settle(self, ctx: Context, call_next: Callable[[], Awaitable[None]]) -> None:
        """Write the record of a handled delivery."""
        settled_ns, answer = time.monotonic_ns(), ACCEPTED
        try:
            await call_next()
        except TaskraftError as refused:
            answer = refused.reason
            raise
        finally:
            if ctx.token in self._running:
                self._write(ctx, settled_ns, answer)

    def _write(self, ctx: Context, settled_ns: int, answer: str) -> None:
        taken_ns, findings = self._running.pop(ctx.token)
        record = DeliveryRecord(
            consumer=self._consumer,
            task_id=ctx.task.id,
            token=ctx.token,
            path=ctx.task.json()["path"],
            taken_ns=taken_ns,
            settled_ns=settled_ns,
            answer=answer,
            sha256=findings.sha256,
            lines=findings.lines,
        )
        assert self._records is not None
        self._records.write(record.to_json())


class FailingReads(Middleware):
    """Lets the first attempt of one in ``FAILING`` files fail, so that the report has failures."""

    async def run(self, ctx: Context, call_next: Callable[[], Awaitable[object]]) -> object:
        """Run the handler, unless this attempt is to fail.

        Raises:
            TimeoutError: this attempt is to fail.
        """
        path = ctx.task.json()["path"]
        if ctx.task.attempt == 1 and zlib.crc32(path.encode()) % FAILING == 0:
            raise TimeoutError("the read took longer than 5 s")
        return await call_next()


recorder = DeliveryRecorder()
app = App("demo", middleware=[recorder, FailingReads()])


@app.task(name="examine", tube=TUBE, keep_result=0)
def examine_file(path: str) -> Findings:
    """Examine a file; the tube keeps the finished task with the findings."""
    return examine(Path(path))


async def consume(arguments: argparse.Namespace) -> int:
    """Work until SIGTERM; return the exit status."""
    async with AsyncClient(arguments.target, name=arguments.name, timeout=TIMEOUT) as client:
        # Line buffering, so that the records of a killed consumer are complete.
        with arguments.records.open("w", buffering=1) as records:
            recorder.start(arguments.name, records)
            app.use(client)
            print("ready", flush=True)
            return await app.run(threads=THREADS, grace=TIMEOUT)


def main() -> None:
    """Parse the arguments, and process tasks until SIGTERM."""
    parser = argparse.ArgumentParser(description="Examine files until SIGTERM.")
    parser.add_argument("--name", required=True)
    parser.add_argument(
        "--target", required=True, help="addresses of the nodes, separated by commas"
    )
    parser.add_argument("--records", required=True, type=Path, help="file for the records")
    sys.exit(asyncio.run(consume(parser.parse_args())))


if __name__ == "__main__":
    main()
