"""Keep the sign-ins that are under way at an OpenID provider."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

PENDING_SECONDS: Final = 600.0
"""Maximum time between the redirect to the provider and the return."""
PENDING_MAX: Final = 1_000
"""Maximum number of sign-ins that are under way; the oldest one is dropped first."""


class PendingSignIns:
    """State and nonce of sign-ins under way, each bound to one browser by its cookie.

    Args:
        clock: returns a monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pending: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()

    def begin(self) -> tuple[str, dict[str, Any]]:
        """Return the id of a new sign-in, and the dictionary for its state."""
        pending_id, state = secrets.token_urlsafe(32), dict[str, Any]()
        self._pending[pending_id] = (self._clock(), state)
        while len(self._pending) > PENDING_MAX:
            self._pending.popitem(last=False)
        return pending_id, state

    def take(self, pending_id: str) -> dict[str, Any] | None:
        """Return and forget the state of a sign-in; None: unknown or too old."""
        began_at, state = self._pending.pop(pending_id, (float("-inf"), None))
        return state if self._clock() - began_at <= PENDING_SECONDS else None
