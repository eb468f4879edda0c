"""Generate histories of tasks from a seed: events as a cluster would emit them."""

import random
from collections import defaultdict
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from taskraft.v1.feed_service_pb2 import ChangeColumns, ChangeEvent
from taskraft.v1.task_pb2 import Task

EPOCH_MS = 1_780_000_000_000


@dataclass(slots=True)
class Event:
    """One transition, with the field names of the API."""

    partition: int
    seq: int
    revision: int
    place: int
    at_ms: int
    tube: str
    task_id: int
    kind: int
    from_state: int
    to_state: int
    attempt: int
    priority: int
    created_ms: int
    since_ms: int
    subqueue: str = ""
    session: str = ""
    reason: str = ""
    type: str = ""
    payload_bytes: int = 0
    outcome: int = 0
    message: str = ""
    fingerprint: int = 0
    target: str = ""
    attempt_failed: bool = False


TUBES = (
    # name, tasks in 100, mean run in ms, chance of failure
    ("thumbnails", 55, 40, 0.04),
    ("mail", 30, 120, 0.10),
    ("billing", 15, 400, 0.02),
)
OUTCOMES = {ChangeEvent.ACK: Task.PROCESSED}
REASONS = ("TimeoutError", "HTTP 503", "ValueError")
LEASE_EXPIRED = "LEASE_EXPIRED"
FINGERPRINTS = {"": 0, **{reason: -1 - n for n, reason in enumerate((*REASONS, LEASE_EXPIRED))}}


@dataclass(slots=True)
class _Life:
    """State of one task in the simulation."""

    task_id: int
    tube: str
    run_ms: int
    failure: float
    created_ms: int
    subqueue: str
    priority: int
    attempt: int = 0
    since_ms: int = 0
    state: int = Task.READY


def history(tasks: int, *, seed: int = 1, partitions: int = 4) -> list[Event]:
    """Return the events of ``tasks`` tasks in log order: put, takes, and the end.

    Some attempts fail: the task is released, its TTR expires, or it is buried after the third
    attempt.
    """
    rng = random.Random(seed)
    events: list[Event] = []
    due: list[tuple[int, int, str, _Life]] = []
    for number in range(tasks):
        name, _, run_ms, failure = rng.choices(TUBES, [share for _, share, _, _ in TUBES])[0]
        at_ms = EPOCH_MS + number * 2 + rng.randrange(40)
        subqueue = f"user-{rng.randrange(50)}" if name == "mail" else ""
        life = _Life(number + 1, name, run_ms, failure, at_ms, subqueue, rng.randrange(3))
        heappush(due, (at_ms, number, "put", life))
    ticket = tasks
    while due:
        at_ms, _, step, life = heappop(due)
        ticket += 1
        if step == "put":
            _emit(events, at_ms, life, ChangeEvent.PUT, Task.STATE_UNSPECIFIED, Task.READY)
            heappush(due, (at_ms + int(rng.expovariate(1 / 60)), ticket, "take", life))
        elif step == "take":
            life.attempt += 1
            _emit(events, at_ms, life, ChangeEvent.TAKE, Task.READY, Task.TAKEN)
            run_ms = 1 + int(rng.lognormvariate(0, 0.7) * life.run_ms)
            heappush(due, (at_ms + run_ms, ticket, "end", life))
        elif rng.random() >= life.failure:
            _emit(events, at_ms, life, ChangeEvent.ACK, Task.TAKEN, Task.STATE_UNSPECIFIED)
        elif life.attempt >= 3:
            reason = rng.choice(REASONS)
            # Buried by the holder, or by the queue because the attempts are used up.
            kind = rng.choice((ChangeEvent.BURY, ChangeEvent.RELEASE))
            _emit(events, at_ms, life, kind, Task.TAKEN, Task.BURIED, reason)
        else:
            timed_out = rng.random() < 0.3
            kind = ChangeEvent.TTR_EXPIRED if timed_out else ChangeEvent.RELEASE
            reason = LEASE_EXPIRED if timed_out else rng.choice(REASONS)
            _emit(events, at_ms, life, kind, Task.TAKEN, Task.READY, reason)
            heappush(due, (at_ms + int(rng.expovariate(1 / 200)), ticket, "take", life))
    return in_partitions(events, partitions)


def _emit(
    events: list[Event],
    at_ms: int,
    life: _Life,
    kind: int,
    from_state: int,
    to_state: int,
    reason: str = "",
) -> None:
    revision = 10 + len(events) // 3
    is_put = kind == ChangeEvent.PUT
    events.append(
        Event(
            partition=0,
            seq=0,
            revision=revision,
            place=len(events) % 3,
            at_ms=at_ms,
            tube=life.tube,
            task_id=life.task_id,
            kind=kind,
            from_state=from_state,
            to_state=to_state,
            attempt=life.attempt,
            priority=life.priority,
            created_ms=life.created_ms,
            since_ms=at_ms if is_put else life.since_ms,
            subqueue=life.subqueue,
            session="" if is_put else f"consumer-{life.task_id % 4}",
            reason=reason,
            type="resize" if life.tube == "thumbnails" else "",
            payload_bytes=100 + life.task_id % 900,
            outcome=Task.BURIED_OUT if to_state == Task.BURIED else OUTCOMES.get(kind, 0),
            message=f"{reason} in task {life.task_id}" if reason else "",
            fingerprint=FINGERPRINTS[reason],
            attempt_failed=bool(reason) and kind != ChangeEvent.BURY,
        )
    )
    life.since_ms = at_ms


def in_partitions(events: list[Event], partitions: int) -> list[Event]:
    """Return the events with partitions and sequence numbers, as the service assigns them."""
    next_seq: dict[int, int] = defaultdict(int)
    placed = []
    for event in events:
        partition = event.task_id * 2_654_435_761 % 2**32 % partitions
        placed.append(replace(event, partition=partition, seq=next_seq[partition]))
        next_seq[partition] += 1
    return placed


TEXTS = ("subqueue", "session", "reason", "type", "message", "target")
KINDS_OF_COLUMNS = {
    "revision": "<i8",
    "place": "<i4",
    "at_ms": "<i8",
    "task_id": "<i8",
    "kind": "<i1",
    "from_state": "<i1",
    "to_state": "<i1",
    "attempt": "<i4",
    "priority": "<i8",
    "created_ms": "<i8",
    "since_ms": "<i8",
    "payload_bytes": "<i4",
    "outcome": "<i1",
    "fingerprint": "<i8",
    "attempt_failed": "<i1",
}


def encoded(events: list[Event], *, is_filtered: bool = False) -> ChangeColumns:
    """Return events in the column encoding of the API."""
    tubes: dict[str, int] = {}
    texts = {"": 0}
    columns = ChangeColumns()
    for name, kind in KINDS_OF_COLUMNS.items():
        setattr(columns, name, np.array([getattr(e, name) for e in events], kind).tobytes())
    if is_filtered:
        columns.seq = np.array([event.seq for event in events], "<i8").tobytes()
    positions = [tubes.setdefault(event.tube, len(tubes)) for event in events]
    columns.tube = np.array(positions, "<i4").tobytes()
    for name in TEXTS:
        positions = [texts.setdefault(getattr(event, name), len(texts)) for event in events]
        setattr(columns, name, np.array(positions, "<i4").tobytes())
    columns.tubes.extend(tubes)
    columns.texts.extend(texts)
    return columns
