"""Choose free addresses on loopback for nodes of demos, benches and tests."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

PORTS: Final = range(10_000, 32_768)
"""Ports below 32768; Linux uses higher ports for outgoing connections
(net.ipv4.ip_local_port_range)."""
_drawn: Final[set[int]] = set()
"""Ports that this process has drawn; each is locked as a byte of a file that all processes
share."""


def free_addresses(count: int) -> list[str]:
    """Return different free addresses on loopback.

    The ports are below the range of outgoing connections, so that no outgoing connection uses the
    port of a stopped node. For the same reason, a port that a running process has drawn is not
    drawn again.
    """
    return [f"127.0.0.1:{free_port()}" for _ in range(count)]


def free_port(offsets: Collection[int] = (0,)) -> int:
    """Return a port that is free on loopback, with each port at an offset to the returned one.

    All these ports are drawn. A program that listens on ports at fixed distances needs them.
    """
    draw = random.SystemRandom()
    while True:
        first = draw.choice(PORTS)
        if all(_is_drawn_now(first + offset) for offset in offsets):
            return first


def _is_drawn_now(port: int) -> bool:
    """Draw a port; return False if the port is out of range, in use, or was drawn before."""
    if port not in PORTS or port in _drawn:
        return False
    with socket.socket() as probe, suppress(OSError):
        fcntl.lockf(_drawn_by_others(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        _drawn.add(port)
        probe.bind(("127.0.0.1", port))
        return True
    return False


@cache
def _drawn_by_others() -> int:
    """Return the open file in which each process locks the byte of each port that it has drawn."""
    path = Path(tempfile.gettempdir()) / f"taskraft-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
