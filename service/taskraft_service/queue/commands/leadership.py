"""Begin a leadership, and do what only the leader decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskraft_service.queue.entities.idempotent import Idempotent
from taskraft_service.queue.values import value


@value
class Startup(Idempotent):
    """Begin a leadership: detach all sessions and give each a full grace.

    Sessionless leases live on. ``feed_id`` and ``feed_partitions`` are used by the first one of a
    cluster only. Answer: ``StartupResult``.
    """

    member_id: int
    failover_grace_ms: int
    feed_id: str = ""
    feed_partitions: int = 0


@value
class TrimFeed(Idempotent):
    """Remove the events below the given sequence numbers, by partition. Answer: ``CountResult``."""

    low_seq: Mapping[int, int]


@value
class NotedCalls:
    """Calls about one tube that change nothing: takes in vain, and tasks that were looked at.

    ``peeks`` with their payloads, ``metas`` without.
    """

    tube: str
    take_timeouts: int = 0
    peeks: int = 0
    metas: int = 0


@value
class NoteCalls(Idempotent):
    """Count what the leader has seen since it last told. Answer: ``CountResult``."""

    tubes: Sequence[NotedCalls]


@value
class StartupResult:
    """How many leases the new leader released."""

    released: int
