"""Limit, delay, drop and cut the traffic between the nodes of a cluster, with TCP proxies.

There is one proxy for each ordered pair of nodes. A proxy also works where the kernel cannot shape
traffic. All connections between two nodes share one link in each direction: bytes leave one after
the other at the rate of the link, and arrive after the delay. The proxy buffers little more than
the bytes on the link, so a sender is slowed down as on a real network. A cut link delivers nothing
and closes no connection, like a network that drops packets. A lost piece arrives later, by the time
that TCP needs to send it again.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from tools.local_cluster import LocalCluster

CHUNK_SECONDS = 0.005
"""Maximum time for which one connection uses the link before another connection gets a turn."""
CHUNK_BYTES = (1_448, 256 << 10)
"""Minimum and maximum number of bytes that a connection sends in its turn."""
AHEAD_SECONDS = 0.01
"""Maximum time for which a connection reserves the link in advance, to cover late timers."""
BUFFER_BYTES = 16 << 10
"""Receive buffer of the proxy; the kernel doubles it."""


RETRANSMISSION_SECONDS = 0.2
"""Minimum retransmission timeout of TCP in Linux."""


@dataclass(frozen=True)
class Quality:
    """The properties of a link."""

    bits_per_second: float = 1e9
    delay_seconds: float = 0.0
    """Time from the end of sending until the arrival of each byte."""
    jitter_seconds: float = 0.0
    """Maximum additional delay of a piece, drawn at random for each piece."""
    loss: float = 0.0
    """Share of the pieces that are lost once and sent again."""


class Link:
    """One direction of a link between two nodes; change it on the event loop that carries it."""

    def __init__(self, quality: Quality, draw: random.Random) -> None:
        self._draw = draw
        self._free_at = 0.0
        self._passable = asyncio.Event()
        self._passable.set()
        self.quality = quality

    @property
    def chunk_bytes(self) -> int:
        """Maximum number of bytes that a connection sends before the next connection may send."""
        smallest, largest = CHUNK_BYTES
        bytes_per_second = self.quality.bits_per_second / 8
        return min(largest, max(smallest, int(bytes_per_second * CHUNK_SECONDS)))

    def cut(self) -> None:
        """Deliver nothing from now on."""
        self._passable.clear()

    def heal(self) -> None:
        """Deliver again, beginning with the bytes that were held back."""
        self._passable.set()

    async def pump(self, reader: socket.socket, writer: socket.socket) -> None:
        """Forward all bytes from one socket to another until one of them is closed."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivery = asyncio.ensure_future(self._deliver(under_way, writer))
        try:
            while data := await loop.sock_recv(reader, self.chunk_bytes):
                bytes_per_second = self.quality.bits_per_second / 8
                self._free_at = max(self._free_at, loop.time()) + len(data) / bytes_per_second
                under_way.put_nowait((self._free_at + self._travel_seconds(), data))
                await asyncio.sleep(self._free_at - loop.time() - AHEAD_SECONDS)
                await self._passable.wait()
        except OSError:
            pass  # a node has closed the connection; close the other side below
        except asyncio.CancelledError:
            delivery.cancel()
            raise
        under_way.put_nowait((loop.time() + self.quality.delay_seconds, b""))
        await delivery

    def _travel_seconds(self) -> float:
        quality = self.quality
        seconds = quality.delay_seconds
        if quality.jitter_seconds:
            seconds += self._draw.uniform(0, quality.jitter_seconds)
        if quality.loss and self._draw.random() < quality.loss:
            seconds += RETRANSMISSION_SECONDS + 2 * quality.delay_seconds
        return seconds

    async def _deliver(
        self, under_way: asyncio.Queue[tuple[float, bytes]], writer: socket.socket
    ) -> None:
        loop = asyncio.get_running_loop()
        data = b"-"
        while data:
            due, data = await under_way.get()
            await asyncio.sleep(due - loop.time())
            await self._passable.wait()
            try:
                await loop.sock_sendall(writer, data)
            except OSError:
                break
        with suppress(OSError):
            writer.shutdown(socket.SHUT_WR)


class PeerLinks:
    """The links between the nodes of a cluster that has not been started yet.

    Args:
        cluster: the cluster whose nodes connect to each other through the links.
        quality: the properties of each link, in each direction.
        seed: seed of the random delays and losses.
    """

    def __init__(
        self, cluster: LocalCluster, quality: Quality | None = None, seed: int = 1
    ) -> None:
        self.quality: Final = quality or Quality()
        """The properties of all links at the beginning, and after ``heal``."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="peer links")
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        addresses = {node.name: node.peer_address for node in cluster.nodes}
        draw = random.Random(seed)  # noqa: S311 - not for secrets
        self._links = links = {
            (sender, to): Link(self.quality, draw)
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

    def pairs(self) -> list[tuple[str, str]]:
        """Return the names of all ordered pairs of nodes: sender, receiver."""
        return list(self._links)

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Deliver nothing from the first to the second node of each pair."""
        for pair in list(pairs):
            self._loop.call_soon_threadsafe(self._links[pair].cut)

    def change(self, pairs: Iterable[tuple[str, str]], quality: Quality) -> None:
        """Set the properties of the links of these pairs."""
        for pair in list(pairs):
            self._loop.call_soon_threadsafe(setattr, self._links[pair], "quality", quality)

    def heal(self) -> None:
        """Make all links deliver again, with their initial properties."""
        for link in self._links.values():
            self._loop.call_soon_threadsafe(link.heal)
        self.change(self._links, self.quality)

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

    def __enter__(self) -> PeerLinks:
        """Start the links."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop all links."""
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
