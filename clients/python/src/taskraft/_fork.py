"""Know whether this process was forked while clients were connected.

gRPC's channels do not work in a child that was forked beside live ones (its fork handlers give up
when other threads call into it, and the child hangs), and our threads do not exist there at all. A
clear error takes the place of a hang. Forking before the first call, or after all clients were
closed, is fine: nothing is connected then.
"""

from __future__ import annotations

import os

from taskraft.errors import ClientForked

_connected = 0
_is_forked = False


def client_connected() -> None:
    """Note that a client is about to open its first channel.

    Raises:
        ClientForked: This process cannot use gRPC any more.
    """
    global _connected  # noqa: PLW0603 - the fork is a fact of the process
    check()
    _connected += 1


def client_disconnected() -> None:
    """Note that a client has closed its channels."""
    global _connected  # noqa: PLW0603 - of the process, as forks are
    if not _is_forked:
        _connected -= 1


def is_forked() -> bool:
    """Return whether this is a child of a process whose clients were connected."""
    return _is_forked


def check() -> None:
    """Raise `ClientForked` in a child of a process whose clients were connected."""
    if _is_forked:
        raise ClientForked(
            "this process was forked from one with a connected taskraft client; "
            'fork before the first call, close the clients before, or use the start method "spawn"'
        )


def _after_fork_in_child() -> None:
    global _is_forked  # noqa: PLW0603 - of the process, as forks are
    _is_forked = _connected > 0


os.register_at_fork(after_in_child=_after_fork_in_child)
