"""Run coroutines on a client's event loop from threads that have no event loop.

A client and all handles that it creates share one `BlockingPortal`. If the portal is not closed, a
finalizer warns and closes the client when the last reference is garbage-collected or the process
exits.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Final, TypeVar

from taskraft import _network
from taskraft.errors import TaskraftError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from taskraft._network import ClientLoop

Result = TypeVar("Result")


CLOSE_SECONDS_MAX: Final = 2.0
"""Maximum time for which an unclosed client delays the exit of the process, in seconds."""


class BlockingPortal:
    """Runs coroutines on the event loop of one client, like anyio's BlockingPortal."""

    def __init__(self, close_client: Callable[[], Coroutine[object, object, None]]) -> None:
        """Store the close function; it must not refer to the portal, which would keep it alive."""
        self._close_client = close_client
        self._loop = _network.current().client_loop()
        self._finalizer = weakref.finalize(self, _close_unclosed, close_client, self._loop)

    def run(self, coroutine: Coroutine[object, object, Result]) -> Result:
        """Run a coroutine in the caller's context and return its result.

        An exception in the calling thread, such as KeyboardInterrupt, cancels the coroutine.

        Raises:
            ClientClosed: the portal was closed.
            ClientForked: the event loop belongs to the parent process of a fork.
            RuntimeError: the caller runs on the client's own event loop.
        """
        return self._loop.run(coroutine)

    def close(self) -> None:
        """Close the client, and stop its event loop."""
        self._finalizer.detach()
        try:
            if self._loop.is_used:
                self._loop.run(self._close_client())
        finally:
            self._loop.close()


def _close_unclosed(
    close_client: Callable[[], Coroutine[object, object, None]], loop: ClientLoop
) -> None:
    """Warn, and close a client that was not closed explicitly, within `CLOSE_SECONDS_MAX`."""
    is_used = loop.is_used
    with contextlib.suppress(TaskraftError, TimeoutError, CancelledError):
        if loop.is_used and not loop.is_current:
            loop.run(close_client(), CLOSE_SECONDS_MAX)
    loop.close(CLOSE_SECONDS_MAX)
    if is_used:
        warnings.warn(
            "unclosed taskraft client; use the client as a context manager, or call close",
            ResourceWarning,
            stacklevel=2,
        )
