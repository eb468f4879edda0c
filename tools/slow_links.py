"""Carry the connections between the nodes of a cluster over links of a given rate and delay.

A TCP proxy for each ordered pair of nodes works where the kernel cannot shape traffic. All
connections between two nodes share one link in each direction: bytes leave one after the other at
the rate of the link, and arrive after the delay. The proxy holds little more than what is on the
link, so a sender feels the rate as it would feel that of a network.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType

from tools.local_cluster import LocalCluster

CHUNK_SECONDS = 0.005
"""Time on the link of the bytes that a connection sends in one go: connections take turns."""
CHUNK_BYTES = (1_448, 256 << 10)
"""Smallest and largest number of these bytes."""
AHEAD_SECONDS = 0.01
"""How long before its bytes leave a connection may reserve the link; covers late timers."""
BUFFER_BYTES = 16 << 10
"""Receive buffer of the proxy; the kernel doubles it."""


class Link:
    """One direction between two nodes.

    Args:
        bits_per_second: the rate.
        delay_seconds: how long each byte travels after it left.
    """

    def __init__(self, bits_per_second: float, delay_seconds: float) -> None:
        self._rate = bits_per_second / 8
        self._delay_seconds = delay_seconds
        self._free_at = 0.0
        smallest, largest = CHUNK_BYTES
        self.chunk_bytes = min(largest, max(smallest, int(self._rate * CHUNK_SECONDS)))

    async def pump(self, reader: socket.socket, writer: socket.socket) -> None:
        """Carry everything from one socket to another until one of them ends."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivery = asyncio.ensure_future(self._deliver(under_way, writer))
        try:
            while data := await loop.sock_recv(reader, self.chunk_bytes):
                self._free_at = max(self._free_at, loop.time()) + len(data) / self._rate
                under_way.put_nowait((self._free_at + self._delay_seconds, data))
                await asyncio.sleep(self._free_at - loop.time() - AHEAD_SECONDS)
        except OSError:
            pass  # a node has closed the connection, which its other side learns below
        except asyncio.CancelledError:
            delivery.cancel()
            raise
        under_way.put_nowait((loop.time() + self._delay_seconds, b""))
        await delivery

    async def _deliver(
        self, under_way: asyncio.Queue[tuple[float, bytes]], writer: socket.socket
    ) -> None:
        loop = asyncio.get_running_loop()
        data = b"-"
        while data:
            due, data = await under_way.get()
            await asyncio.sleep(due - loop.time())
            try:
                await loop.sock_sendall(writer, data)
            except OSError:
                break
        with suppress(OSError):
            writer.shutdown(socket.SHUT_WR)


class SlowLinks:
    """The links between the nodes of a cluster that has not been started yet.

    Args:
        cluster: its nodes are told to reach each other through the links.
        megabits: rate of each link in Mbit/s, in each direction.
        delay_ms: delay of each link, in each direction.
    """

    def __init__(self, cluster: LocalCluster, megabits: float, delay_ms: float) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow links")
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        addresses = {node.name: node.peer_address for node in cluster.nodes}
        links = {
            (sender, to): Link(megabits * 1e6, delay_ms / 1e3)
            for sender in addresses
            for to in addresses
            if sender != to
        }
        for node in cluster.nodes:
            members = node.environment["TASKRAFT_PEERS"]
            for other, address in addresses.items():
                if other != node.name:
                    there, back = links[node.name, other], links[other, node.name]
                    members = members.replace(
                        f"@{address}/", f"@{self._listen(address, there, back)}/"
                    )
            node.environment = {**node.environment, "TASKRAFT_PEERS": members}

    def _listen(self, target: str, there: Link, back: Link) -> str:
        """Forward connections to ``target``; return the address to use in its place."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        listener.settimeout(0)
        self._listeners.append(listener)
        self._start(self._accept(listener, target, there, back))
        return f"127.0.0.1:{listener.getsockname()[1]}"

    async def _accept(self, listener: socket.socket, target: str, there: Link, back: Link) -> None:
        while True:
            near, _ = await asyncio.get_running_loop().sock_accept(listener)
            self._start(self._connect(near, target, there, back))

    async def _connect(self, near: socket.socket, target: str, there: Link, back: Link) -> None:
        host, _, port = target.rpartition(":")
        far = socket.socket()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        far.settimeout(0)
        with near, far, suppress(OSError):
            await asyncio.get_running_loop().sock_connect(far, (host, int(port)))
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.gather(there.pump(near, far), back.pump(far, near))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        """Start a task on the loop of the links, from any thread."""

        def start() -> None:
            task = self._loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._loop.call_soon_threadsafe(start)

    def __enter__(self) -> SlowLinks:
        """Begin to carry."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cut all links."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
