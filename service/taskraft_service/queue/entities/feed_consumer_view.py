"""Show a consumer of the change feed to callers."""

from __future__ import annotations

from collections.abc import Mapping

from taskraft_service.queue.values import value


@value
class ConsumerView:
    """A consumer as it is shown; ``committed_ms``: when it was last heard of."""

    name: str
    next_seq: Mapping[int, int]
    committed_ms: int
    idle_ttl_ms: int
