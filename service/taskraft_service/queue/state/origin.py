"""Say from where a new queue counts its tubes, tokens and tasks.

The replicated queue counts from one. Others that live beside it count from elsewhere, so that a
number tells whose it is.
"""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.values import value


@value
class CounterOrigin:
    """Numbers that count as given before the first one: of a tube, of a lease, of a task."""

    tube: int = 0
    token: int = 0
    task: int = 0


BEGINNING: Final = CounterOrigin()
"""Where the replicated queue counts from."""
