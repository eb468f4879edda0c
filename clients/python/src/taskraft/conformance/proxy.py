"""Stand between a client program and a node, and cut the connections at chosen moments."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Final

from taskraft.conformance.lost_message import MessageFrames

if TYPE_CHECKING:
    from types import TracebackType

    from taskraft.conformance.lost_message import LostMessage

_BYTES: Final = 65_536
_HOST: Final = "127.0.0.1"


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
        self._lost: LostMessage | None = None
        self._accepts = True
        self._listener = socket.create_server((_HOST, 0))
        self.address: Final = f"{_HOST}:{self._listener.getsockname()[1]}"
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

    def lose(self, message: LostMessage) -> None:
        """Lose a message and cut its connection; several proxies can count the same messages."""
        self._lost = message

    def refuse(self) -> None:
        """Cut all connections, and close new connections at once."""
        self._accepts = False
        self.cut()

    def accept(self) -> None:
        """Accept connections again, and lose no message."""
        self._accepts = True
        self._lost = None

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
        """Copy bytes from one socket to the other until one end closes, or a message is lost."""
        is_request = source is pair[0]
        frames = MessageFrames(is_request=is_request)
        with contextlib.suppress(OSError):
            while received := source.recv(_BYTES):
                for frame, is_message in frames.split(received):
                    if self._is_lost(frames, is_request=is_request, is_message=is_message):
                        self._close(pair)
                        return
                    sink.sendall(frame)
        self._close(pair)

    def _is_lost(self, frames: MessageFrames, *, is_request: bool, is_message: bool) -> bool:
        lost = self._lost
        if lost is None:
            return False
        if frames.is_encrypted:
            lost.encrypted()
        return is_message and lost.is_lost(is_request=is_request)

    def _close(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
        for each in pair:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
