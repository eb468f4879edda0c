"""The cluster of a kit in the memory of the test, with a virtual clock."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from taskraft import _network
from taskraft._async_client import AsyncClient
from taskraft.testing._backend import cancel_all
from taskraft.testing._memory_network import MemoryNetwork
from taskraft.testing._sent_tasks import SentTasks
from taskraft.testing._server import memory_node, quiet_server
from taskraft.testing._virtual_time import VirtualTime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from taskraft.testing._worker_run import WorkerRun

TARGET: Final = "memory:7401"


class MemoryBackend:
    """One node in memory; satisfies `Backend`."""

    def __init__(
        self, start: datetime, *, auto_create_tubes: bool, wait_seconds_max: float
    ) -> None:
        self.start: Final = start
        self.sent: Final = SentTasks()
        self._auto_create_tubes = auto_create_tubes
        self._wait_seconds_max = wait_seconds_max
        self._undo = ExitStack()

    async def open(self) -> None:
        """Start the cluster, and let new clients connect to it."""
        time = self.time = VirtualTime(asyncio.get_running_loop())
        time.wait_seconds_max = self._wait_seconds_max
        time.install()
        self._undo.callback(time.uninstall)
        self._others = asyncio.all_tasks()
        self._undo.enter_context(quiet_server())
        start_ms = round((self.start.timestamp() - time.time()) * 1_000)
        self.node = memory_node(time, start_ms, auto_create_tubes=self._auto_create_tubes)
        for method in self.sent.METHODS:
            self._record(method)
        network = MemoryNetwork(time, self.node.channel)
        self._networks = [network]
        self._undo.enter_context(_network.using(network))
        await self.node.start()

    def _record(self, method: str) -> None:
        inner = self.node.handlers[method]

        async def recorded(raw: bytes, context: object) -> object:
            answer = await inner(raw, context)
            self.sent.accepted(method, raw, answer)
            return answer

        self.node.handlers[method] = recorded

    async def close(self) -> None:
        """End the cluster; raise the error that broke the node, if there is one."""
        for network in self._networks:
            network.kill()
        self.node.depose()
        try:
            await cancel_all(self._others)
        finally:
            self._undo.close()
        if self.node.broken_by is not None:
            raise self.node.broken_by

    def connect(self, name: str) -> tuple[MemoryNetwork, AsyncClient]:
        """Return a client with connections of its own."""
        network = MemoryNetwork(self.time, self.node.channel)
        self._networks.append(network)
        with _network.using(network):
            return network, AsyncClient(TARGET, name=name)

    async def run_until(self, until: float, worker: WorkerRun | None) -> None:
        """Run all other coroutines until they are idle and the clock has reached `until`."""
        del worker
        await self.time.run_until(until)

    async def next_due(self, end: float) -> float | None:
        """Return the time of the next timer."""
        due = self.time.next_timer()
        return None if due is None or due > end else due

    async def keep_house(self) -> None:
        """Do the periodic work of a leader."""
        await self.node.keep_house()

    async def change_leader(self, pause: float) -> None:
        """Lose the leader, and elect the next one after a pause in seconds."""
        self.node.depose()
        if pause:
            await self.time.run_until(self.time.time() + pause)
        self.node.elect()
        await self.node.wait_until_serving()

    @contextmanager
    def threads_ignored(self) -> Iterator[None]:
        """Let the clock move in this block although threads and processes work."""
        self.time.waits_for_threads = False
        try:
            yield
        finally:
            self.time.waits_for_threads = True

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        for network in self._networks:
            network.cut()

    def restore(self) -> None:
        """Let clients connect again."""
        for network in self._networks:
            network.restore()

    def lose_answers(self, *, is_lossy: bool) -> None:
        """Execute calls and lose their answers, or stop doing so."""
        for network in self._networks:
            network.lose_answers(is_lossy=is_lossy)
