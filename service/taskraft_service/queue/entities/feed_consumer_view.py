"""A consumer of the change feed as callers see it."""

from __future__ import annotations

from collections.abc import Mapping

from taskraft_service.queue.values import value


@value
class ConsumerView:
    """A feed consumer as callers see it; ``committed_ms``: instant of the last commit."""

    name: str
    next_seq: Mapping[int, int]
    committed_ms: int
    idle_ttl_ms: int
