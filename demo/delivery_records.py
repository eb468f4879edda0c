"""Store the deliveries of each consumer, and check them afterwards.

Each consumer process writes one line per delivery, with times of the monotonic clock, which all
processes of a machine share. The check does not trust the server: it compares the intervals between
the start of the handler and the sending of the settlement.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

ACCEPTED: Final = "OK"
"""Answer to an accepted acknowledgement; any other answer is the error reason."""


@dataclass(slots=True, frozen=True)
class DeliveryRecord:
    """One delivery of one task to one consumer."""

    consumer: str
    task_id: int
    token: int
    path: str
    taken_ns: int
    """Time at which the handler began."""
    settled_ns: int
    """Time just before the acknowledgement was sent."""
    answer: str
    """Answer of the server: ``ACCEPTED`` or the reason of an error."""
    sha256: str
    lines: int

    def to_json(self) -> str:
        """Return the record as one line."""
        return json.dumps(asdict(self)) + "\n"


def read_records(paths: Iterable[Path]) -> Iterator[DeliveryRecord]:
    """Yield the records of all consumers."""
    for path in paths:
        with path.open() as lines:
            for line in lines:
                yield DeliveryRecord(**json.loads(line))


@dataclass(slots=True, frozen=True)
class RecordsCheck:
    """Result of checking the consumers' records."""

    processed: int
    """Number of tasks with exactly one accepted acknowledgement."""
    lost: Collection[int]
    """Tasks that were put and have no accepted acknowledgement."""
    acknowledged_twice: Collection[int]
    held_twice: Collection[int]
    """Tasks that two deliveries held at the same time."""
    tokens_out_of_order: Collection[int]
    """Tasks of which a later delivery has no larger lease token, so the token cannot be used for
    fencing."""
    refused: int
    """Number of refused acknowledgements: the lease had ended and the task was processed again."""

    @property
    def is_clean(self) -> bool:
        """Return whether the check found no error."""
        return not (
            self.lost or self.acknowledged_twice or self.held_twice or self.tokens_out_of_order
        )


def check_records(put: Collection[int], records: Iterable[DeliveryRecord]) -> RecordsCheck:
    """Check the deliveries of the tasks with the given ids."""
    by_task: defaultdict[int, list[DeliveryRecord]] = defaultdict(list)
    for record in records:
        by_task[record.task_id].append(record)
    accepted = {
        task_id: sum(record.answer == ACCEPTED for record in deliveries)
        for task_id, deliveries in by_task.items()
    }
    return RecordsCheck(
        processed=sum(accepted.get(task_id) == 1 for task_id in put),
        lost=sorted(task_id for task_id in put if not accepted.get(task_id)),
        acknowledged_twice=sorted(task_id for task_id, count in accepted.items() if count > 1),
        held_twice=sorted(task_id for task_id, each in by_task.items() if _overlap(each)),
        tokens_out_of_order=sorted(
            task_id for task_id, each in by_task.items() if not _tokens_grow(each)
        ),
        refused=sum(
            record.answer != ACCEPTED for deliveries in by_task.values() for record in deliveries
        ),
    )


def _in_order(deliveries: Iterable[DeliveryRecord]) -> Sequence[DeliveryRecord]:
    return sorted(deliveries, key=lambda record: record.taken_ns)


def _overlap(deliveries: Iterable[DeliveryRecord]) -> bool:
    """Return whether a delivery began before the previous one had ended."""
    return any(
        later.taken_ns < earlier.settled_ns for earlier, later in pairwise(_in_order(deliveries))
    )


def _tokens_grow(deliveries: Iterable[DeliveryRecord]) -> bool:
    return all(earlier.token < later.token for earlier, later in pairwise(_in_order(deliveries)))
