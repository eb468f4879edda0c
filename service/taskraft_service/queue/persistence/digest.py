"""Hash the whole queue state, to compare replicas."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from taskraft_service.queue.codecs.task_codec import write_task
from taskraft_service.queue.feed.change_feed import low_and_high
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.tube_codec import write_tube


def digest_of(state: QueueState) -> bytes:
    """Return a hash of the whole state; replicas with the same applied index have the same hash.

    Reads the whole store, including the backlog and the events of the change feed.
    """
    whole = blake2b(digest_size=16)
    for part in _parts(state):
        whole.update(len(part).to_bytes(4, "big"))
        whole.update(part)
    for partition, (low, high) in enumerate(low_and_high(state.feed)):
        for seq, event in state.feed.events(partition, low, high):
            whole.update(repr((partition, seq, *event)).encode())
    return whole.digest()


def _parts(state: QueueState) -> Iterator[bytes]:
    numbers = (state.index, state.now_ms, state.token, state.tubes.number)
    yield repr((numbers, state.sessions.number, state.feed.feed_id)).encode()
    yield repr(low_and_high(state.feed)).encode()
    for number, (tube, next_id) in state.removals.items():
        yield repr((number, tube.name, next_id)).encode()
        for task in state.tasks(tube, next_id - 1):
            # Do not hash the record: it may name an ended session, unlike the task in memory.
            yield repr((task.id, task.state, task.attempt)).encode()
    for _, tube in sorted(state.tubes.items()):
        yield write_tube(tube)
        yield from tube.subqueue_rates.digest_parts(state.now_ms)
        for task in state.tasks(tube):
            yield task.id.to_bytes(8, "big") + write_task(task)
            yield state.body(task)
    for _, session in sorted(state.sessions.items()):
        yield session.record()
        yield repr(list(session.held)).encode()
    yield repr(list(state.leases)).encode()
    yield from state.failures.digest_parts()
    yield from (consumer.record() for consumer in state.consumers)
    yield from (schedule.record() for schedule in state.schedules)
    yield from state.groups.digest_parts()
    yield from state.dependents.digest_parts()
    for place, task_id in state.unique_keys.items():
        yield place + task_id.to_bytes(8, "big")
    yield state.requests.record()
    for request_id, answer in sorted(state.requests.items()):
        yield request_id.encode() + answer
