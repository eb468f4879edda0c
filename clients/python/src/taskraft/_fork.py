"""Detect that this process was forked while clients were connected.

gRPC channels do not work in a child process that was forked while other threads used gRPC: the
child hangs. The client's threads do not exist in the child either. The functions below turn the
hang into a clear error. Forking before the first call, or after all clients were closed, is safe.
"""

from __future__ import annotations

import os

from taskraft.errors import ClientForked

_connected = 0
_is_forked = False


def client_connected() -> None:
    """Record that a client is about to open its first channel.

    Raises:
        ClientForked: this process was forked while clients were connected.
    """
    global _connected  # noqa: PLW0603 - state of the process
    check()
    _connected += 1


def client_disconnected() -> None:
    """Record that a client has closed its channels."""
    global _connected  # noqa: PLW0603 - state of the process
    if not _is_forked:
        _connected -= 1


def is_forked() -> bool:
    """Return whether this process was forked while clients were connected."""
    return _is_forked


def check() -> None:
    """Raise `ClientForked` if this process was forked while clients were connected."""
    if _is_forked:
        raise ClientForked(
            "this process was forked from a process with a connected taskraft client; fork before "
            'the first call, close all clients before the fork, or use the start method "spawn"'
        )


def _after_fork_in_child() -> None:
    global _is_forked  # noqa: PLW0603 - state of the process
    _is_forked = _connected > 0


os.register_at_fork(after_in_child=_after_fork_in_child)
