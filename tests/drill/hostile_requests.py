"""A hostile caller with all rights, which sends the most expensive request of every method."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from typing import Any, Final

from tests.drill.hostile import Hostile
from tools.local_node import NodeFailed

FILL_SECONDS_MAX: Final = 120.0
END_SECONDS_MAX: Final = 45.0
"""Maximum time until the process has ended its last requests."""


class DemandingCaller(Hostile):
    """Runs the caller of ``request_sender`` in a process of its own.

    The other clients and the links between the nodes are in this process. They must not wait while
    the caller makes large requests.
    """

    name = "demanding"
    _process: Process

    async def prepare(self) -> None:
        """Start the process, and wait until it has created many objects.

        Raises:
            NodeFailed: the process ended, because a call failed while there was no fault.
        """
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.drill.request_sender", stdin=PIPE, stdout=PIPE
        )
        addresses = [node.address for node in self.scene.cluster.nodes]
        options = self.access.client_options(self.name)
        await self._write({"addresses": addresses, "seed": self.floor.seed, **options})
        await self._read(FILL_SECONDS_MAX)

    def tried(self) -> int:
        """Return the number of answers."""
        return super().tried() + self.findings.answered.total()

    async def run(self) -> None:
        """Let the process send requests until the drill is over, and note what nodes answered.

        Raises:
            NodeFailed: the process ended.
        """
        await self._write({})
        await self.floor.over.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        found = await self._read(END_SECONDS_MAX)
        self.findings.answered.update(found["answered"])
        self.findings.refused[self.name] += found["refused"]
        self.findings.unanswered += found["unanswered"]
        await self._process.wait()

    async def _write(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def _read(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(seconds):
            line = await self._process.stdout.readline()
        if not line:
            raise NodeFailed(f"the demanding caller ended: status {await self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found
