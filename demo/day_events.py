"""Convert simulated days of tubes into the events of a change feed, as columns."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from demo.simulated_day import ATTEMPTS_MAX, DAY_MS, ENDLESS, FIRST_DELAY_MS, START_MS
from taskraft.v1.feed_service_pb2 import ChangeColumns, ChangeEvent
from taskraft.v1.task_pb2 import Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from demo.simulated_day import TubeDay

    Columns = dict[str, NDArray[np.int64]]

PARTITIONS: Final = 4
FAILURES: Final = (
    ("TimeoutError", "read timed out after 30 s"),
    ("ConnectionError", "connection to smtp.example closed"),
    ("ValueError", "not an address"),
)
WIDTHS: Final[Mapping[str, str]] = {
    "revision": "<i8", "place": "<i4", "at_ms": "<i8", "tube": "<i4", "task_id": "<i8",
    "kind": "<i1", "from_state": "<i1", "to_state": "<i1", "attempt": "<i4", "priority": "<i8",
    "created_ms": "<i8", "since_ms": "<i8", "subqueue": "<i4", "session": "<i4", "reason": "<i4",
    "type": "<i4", "payload_bytes": "<i4", "outcome": "<i1", "message": "<i4",
    "fingerprint": "<i8", "target": "<i4", "attempt_failed": "<i1",
}  # fmt: skip
"""Type of each column in the encoding of the API."""
STEPS: Final[Mapping[int, int]] = {
    ChangeEvent.PUT: 0, ChangeEvent.DELAY_DUE: 1, ChangeEvent.TAKE: 2,
}  # fmt: skip
"""Order of the events of a task at the same ms; all other kinds come last."""


class TextTable:
    """The texts of all events; a column contains their numbers, and 0 is the empty text."""

    def __init__(self) -> None:
        self.texts = {"": 0}

    def numbers(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of each text."""
        return np.array([self.texts.setdefault(one, len(self.texts)) for one in texts], np.int64)


@dataclass(frozen=True, slots=True)
class DayEvents:
    """The events of a day by partition, in the order of the feed."""

    tubes: tuple[str, ...]
    texts: tuple[str, ...]
    partitions: tuple[Mapping[str, NDArray[np.int64]], ...]

    @property
    def events(self) -> int:
        """Number of events."""
        return sum(len(one["at_ms"]) for one in self.partitions)

    def encoded(self, partition: int, first_seq: int, next_seq: int) -> ChangeColumns:
        """Return the events from ``first_seq`` up to, but not including, ``next_seq``."""
        columns = ChangeColumns(tubes=self.tubes, texts=self.texts)
        for name, width in WIDTHS.items():
            values = self.partitions[partition][name][first_seq:next_seq]
            setattr(columns, name, values.astype(width).tobytes())
        return columns


def day_events(days: Sequence[TubeDay]) -> DayEvents:
    """Return the events of a day of some tubes; an event after the end of the day is left out."""
    texts = TextTable()
    every = joined([tube_events(day, number, texts) for number, day in enumerate(days)])
    every = chosen(every, every["at_ms"] < START_MS + DAY_MS)
    steps = np.full(len(every["kind"]), len(STEPS))
    for kind, step in STEPS.items():
        steps[every["kind"] == kind] = step
    every = chosen(every, np.lexsort((steps, every["at_ms"])))
    positions = np.arange(len(steps))
    every["revision"], every["place"] = 10 + positions // 3, positions % 3
    partition = (every["task_id"] * 31 + every["tube"]) % PARTITIONS
    return DayEvents(
        tuple(day.plan.tube for day in days),
        tuple(texts.texts),
        tuple(chosen(every, partition == one) for one in range(PARTITIONS)),
    )


def joined(parts: Sequence[Columns]) -> Columns:
    """Return the rows of all parts, which have the same columns."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def chosen(columns: Columns, rows: NDArray[np.generic]) -> Columns:
    """Return some rows, given as positions or as a mask."""
    return {name: values[rows] for name, values in columns.items()}


def tube_events(day: TubeDay, tube: int, texts: TextTable) -> Columns:
    """Return all events of a tube, without an order."""
    made = day.attempts
    task = np.array(made.task, np.int64)
    attempt = np.array(made.attempt, np.int64)
    ready_ms, start_ms = np.array(made.ready_ms, np.int64), np.array(made.start_ms, np.int64)
    end_ms, failed = np.array(made.end_ms, np.int64), np.array(made.is_failed, bool)
    is_last = failed & (attempt == ATTEMPTS_MAX)
    waits = failed & ~is_last
    end_kind = np.where(failed, np.int64(ChangeEvent.RELEASE), np.int64(ChangeEvent.ACK))
    end_state = np.where(waits, np.int64(Task.DELAYED), 0)
    end_state[is_last] = Task.BURIED
    outcome = np.where(failed, 0, np.int64(Task.PROCESSED))
    outcome[is_last] = Task.BURIED_OUT
    is_retry, has_end = attempt > 1, end_ms != ENDLESS
    retried = attempt[is_retry]
    due_since = ready_ms[is_retry] - (FIRST_DELAY_MS << np.maximum(retried - 2, 0))
    numbers = np.arange(len(day.put_ms))
    sessions = texts.numbers([f"{day.plan.tube}-worker-{one + 1}" for one in range(day.workers)])
    session = sessions[np.array(made.worker, np.int64)]
    ends = moves(task, attempt, end_ms, start_ms, end_kind, (Task.TAKEN, end_state), session)
    ends |= {"outcome": outcome, "attempt_failed": failed.astype(np.int64)}
    ends |= failure_columns(task, failed, texts)
    parts = [
        moves(numbers, 0, day.put_ms, day.put_ms, ChangeEvent.PUT, (0, Task.READY)),
        moves(
            task[is_retry], retried - 1, ready_ms[is_retry], due_since, ChangeEvent.DELAY_DUE,
            (Task.DELAYED, Task.READY),
        ),
        moves(
            task, attempt, start_ms, ready_ms, ChangeEvent.TAKE, (Task.READY, Task.TAKEN), session
        ),
        chosen(ends, has_end),
    ]  # fmt: skip
    every = joined(parts)
    labels = ["", *(f"customer-{one}" for one in range(1, day.plan.subqueues + 1))]
    place = every.pop("number")
    kind = texts.numbers([f"{day.plan.tube}.task"])
    filled = {"tube": tube, "priority": 0, "target": 0, "type": kind[0]}
    every |= {name: np.full(len(place), value, np.int64) for name, value in filled.items()}
    every["task_id"], every["created_ms"] = place + 1, day.put_ms[place]
    every["subqueue"] = texts.numbers(labels)[day.subqueue[place]]
    every["payload_bytes"] = 100 + place % 900
    return every


def moves(
    number: NDArray[np.int64],
    attempt: NDArray[np.int64] | int,
    at_ms: NDArray[np.int64],
    since_ms: NDArray[np.int64],
    kind: NDArray[np.int64] | int,
    states: tuple[int, NDArray[np.int64] | int],
    session: NDArray[np.int64] | int = 0,
) -> Columns:
    """Return one event for each number of a task; a single value applies to all events."""
    columns = {
        "number": number, "attempt": attempt, "at_ms": at_ms, "since_ms": since_ms, "kind": kind,
        "from_state": states[0], "to_state": states[1], "session": session, "outcome": 0,
        "reason": 0, "message": 0, "fingerprint": 0, "attempt_failed": 0,
    }  # fmt: skip
    return {
        name: np.broadcast_to(np.asarray(values, np.int64), number.shape)
        for name, values in columns.items()
    }


def failure_columns(
    task: NDArray[np.int64], failed: NDArray[np.bool_], texts: TextTable
) -> Columns:
    """Return reason, message and fingerprint of attempts; empty for attempts that succeeded."""
    place = task % len(FAILURES)
    values = {
        "reason": texts.numbers([reason for reason, _ in FAILURES]),
        "message": texts.numbers([message for _, message in FAILURES]),
        "fingerprint": np.array([zlib.crc32(one.encode()) for one, _ in FAILURES], np.int64),
    }
    return {name: np.where(failed, found[place], 0) for name, found in values.items()}
