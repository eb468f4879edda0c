"""Merge the defaults of a tube with the attributes of a new task."""

from __future__ import annotations

from taskraft_service.queue.entities.instants import FOREVER_MS, NEVER_MS, after, lengthened
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task import EffectiveTaskOptions
from taskraft_service.queue.entities.tube import QueueTube


def effective_options(tube: QueueTube, task: NewTask, now_ms: int) -> EffectiveTaskOptions:
    """Return the attributes of a task that is put now.

    A delay extends the time to live, as in tarantool/queue. The position FRONT or BACK of a delayed
    task is ignored.
    """
    options = tube.options
    priority = options.priority if task.priority is None else task.priority
    delay_ms = options.delay_ms if task.delay_ms is None else task.delay_ms
    if task.visible_at_ms is not None:
        delay_ms = max(delay_ms, task.visible_at_ms - now_ms)
    ttl_ms = options.ttl_ms if task.ttl_ms is None else task.ttl_ms
    if delay_ms > 0 or not 0 <= ttl_ms <= FOREVER_MS:
        ttl_ms = lengthened(ttl_ms, delay_ms)
    ttr_ms = options.ttr_ms if task.ttr_ms is None else task.ttr_ms
    lane = 0
    if delay_ms <= 0 and task.position is not Position.IN_ORDER:
        lane = tube.lane(task.position)
    return EffectiveTaskOptions(
        Operation.PUT_DELAYED if delay_ms > 0 else Operation.PUT,
        lane,
        ~priority if options.higher_first else priority,
        priority,
        ttl_ms,
        max(ttr_ms, 0),
        after(now_ms, delay_ms) if delay_ms > 0 else NEVER_MS,
        NEVER_MS if ttl_ms >= FOREVER_MS else now_ms + ttl_ms,
    )
