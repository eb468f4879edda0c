"""Say what of a task is to change, alone or together with a transition."""

from __future__ import annotations

from taskraft_service.queue.values import value


@value
class TaskUpdate:
    """Changes of one task; None leaves an attribute as it is, durations count from now.

    Args:
        content: changes of the body, as the client said them: opaque to the queue, for the
            ``Editor`` that it was opened with. Empty: none.
        priority: the new priority.
        delay_ms: the new delay; says nothing of a task that is ready.
        ttl_ms: the new time to live.
        ttr_ms: the new time to run, for the next take.
    """

    content: bytes = b""
    priority: int | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    ttr_ms: int | None = None
