"""Changes of one task, alone or together with a transition."""

from __future__ import annotations

from taskraft_service.queue.values import value


@value
class TaskUpdate:
    """Changes of one task; None leaves an attribute unchanged; durations count from now.

    Args:
        content: changes of the body, opaque to the queue, for its ``Editor``; empty: none.
        priority: the new priority.
        delay_ms: the new delay; ignored for a READY task.
        ttl_ms: the new time to live.
        ttr_ms: the new time to run, from the next take.
    """

    content: bytes = b""
    priority: int | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    ttr_ms: int | None = None
