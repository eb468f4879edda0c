"""Hold back SIGUSR1 from the begin of the process until the node can switch its log level.

The default action of SIGUSR1 ends a process. This module imports only ``signal``, because a process
must hold the signal before the other modules are loaded, which takes about a second.
"""

from __future__ import annotations

import signal


def hold() -> None:
    """Keep SIGUSR1 pending; a signal that arrives now takes effect with ``deliver``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


def deliver() -> None:
    """Let SIGUSR1 reach its handler, which must be installed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
