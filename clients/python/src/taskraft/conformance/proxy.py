"""Stand between a client program and a node, and cut the connections at chosen moments."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType

_BYTES: Final = 65_536
_HOST: Final = "127.0.0.1"
_CONTROL_BYTES: Final = 40
"""Frames of the connection alone, such as acknowledged pings and window updates, are shorter."""


class CuttableProxy:
    """A TCP proxy on loopback for one node.

    Args:
        target: address of the node, as HOST:PORT.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host.strip("[]"), int(port))
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._cuts_answer = False
        self._min_bytes = 0
        self._asked: set[socket.socket] = set()
        """Sockets to the node of connections that have sent bytes since ``cut_next_answer``."""
        self._accepts = True
        self._listener = socket.create_server((_HOST, 0))
        self.address: Final = f"{_HOST}:{self._listener.getsockname()[1]}"
        self._cut = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> CuttableProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the listener and all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut_next_answer(self, min_bytes: int) -> None:
        """Cut a connection when its node answers the next request; the answer is lost.

        Args:
            min_bytes: minimum size of the request; smaller messages, such as pings, pass.
        """
        with self._lock:
            self._asked.clear()
            self._cut.clear()
            self._min_bytes = min_bytes
            self._cuts_answer = True

    @property
    def has_cut(self) -> bool:
        """Return whether an answer was lost since ``cut_next_answer``."""
        return self._cut.is_set()

    def refuse(self) -> None:
        """Cut all connections, and close new connections at once."""
        self._accepts = False
        self.cut()

    def accept(self) -> None:
        """Accept connections again, and lose no further answers."""
        self._accepts = True
        self._cuts_answer = False

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._close(pair)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._accepts:
                client.close()
                continue
            try:
                node = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            node.settimeout(None)
            pair = (client, node)
            with self._lock:
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._pump, args=(pair, source, sink), daemon=True).start()

    def _pump(
        self,
        pair: tuple[socket.socket, socket.socket],
        source: socket.socket,
        sink: socket.socket,
    ) -> None:
        """Copy bytes from one socket to the other until one end closes, or an answer is cut."""
        with contextlib.suppress(OSError):
            while received := source.recv(_BYTES):
                if self._loses(pair, source, len(received)):
                    break
                sink.sendall(received)
        self._close(pair)

    def _loses(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, size: int
    ) -> bool:
        """Return whether these bytes are an answer that must be lost."""
        client, node = pair
        if not self._cuts_answer:
            return False
        with self._lock:
            if source is client:
                if size >= self._min_bytes:
                    self._asked.add(node)
                return False
            if node in self._asked and size > _CONTROL_BYTES and self._cuts_answer:
                self._cuts_answer = False
                self._cut.set()
                return True
        return False

    def _close(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
        for each in pair:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
