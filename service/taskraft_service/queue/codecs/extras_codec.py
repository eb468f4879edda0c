"""State the layouts of the extras of a task and of a retry policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.codecs.fields import (
    Blob,
    Flags,
    Nested,
    Number,
    Optional,
    Present,
    Rows,
    Size,
    Text,
    Texts,
)
from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.task_view import (
    Awaited,
    Extras,
    Failure,
    OnDependencyFailure,
    TaskOrigin,
    TaskProgress,
    Waiting,
)

RETRY: Final = FieldTable(
    RetryPolicy,
    Number("attempts_max", "I"),
    Number("backoff_ms", "q"),
    Number("factor_percent", "I"),
    Number("backoff_ms_max", "q"),
    Number("jitter_percent", "B"),
    Number("exhausted", "B", Exhausted),
    Number("position", "B", Position),
)


def _numbers_of(waiting: Waiting) -> Sequence[tuple[int, int]]:
    return [(awaited.number, awaited.id) for awaited in waiting.open]


def _tubes_of(waiting: Waiting) -> Sequence[str]:
    return [awaited.tube for awaited in waiting.open]


def _waiting(
    on_failure: OnDependencyFailure,
    delay_ms: int,
    numbers: Sequence[tuple[int, int]],
    tubes: Sequence[str],
) -> Waiting:
    awaited = [
        Awaited(number, tube, task_id)
        for (number, task_id), tube in zip(numbers, tubes, strict=True)
    ]
    return Waiting(tuple(awaited), on_failure, delay_ms)


_WAITING: Final = FieldTable(
    _waiting,
    Number("on_failure", "B", OnDependencyFailure),
    Number("delay_ms", "q"),
    Size("H", "numbers", "tubes"),
    Rows("numbers", "QQ", of=_numbers_of),
    Texts("tubes", of=_tubes_of),
)
"""Open dependencies: the set and the task of each, then the tube of each."""

EXTRAS: Final = FieldTable(
    Extras,
    Flags(
        "H",
        Present("failure"),
        "failure.fatal",
        Present("progress"),
        Present("result"),
        Present("retry"),
        "cancel_requested",
        Present("origin"),
        Present("dependents"),
        Present("waiting"),
    ),
    Number("outcome", "B", TaskOutcome),
    Number("times_buried", "I"),
    Number("retain_until_ms", "q"),
    Number("progress.basis_points", "H"),
    Size("H", "unique_key"),
    Number("group_number", "Q"),
    Number("origin.task_id", "Q"),
    Size("H", "origin.unique_key"),
    Text("failure.type"),
    Text("failure.message"),
    Text("progress.note"),
    Blob("result"),
    Text("result_content_type"),
    Text("group"),
    Text("origin.tube"),
    Texts("unique_key"),
    Texts("origin.unique_key"),
    Optional(Nested("retry", RETRY)),
    Optional(Number("dependents", "Q")),
    Optional(Nested("waiting", _WAITING)),
    parts={"failure": Failure, "progress": TaskProgress, "origin": TaskOrigin},
)
