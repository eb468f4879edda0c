"""The page of one schedule: its next times, its last result, and the backfill of past times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from taskraft import Batch
from taskraft_console.data.cluster_reads import SCHEDULE_TIMES
from taskraft_console.pages.page import ChangeForms, FormRefused, PageView, PageVisit, shell_word
from taskraft_console.pages.schedules import change_schedule
from taskraft_console.pages.time_window import instant_of
from taskraft_console.views.readable import iso_time

if TYPE_CHECKING:
    from taskraft import AsyncClient, PlannedTask

BACKFILL_MAX: Final = 99
"""Maximum number of tasks of one backfill; the tasks are put at once, all or none."""
SLOT_HEADER: Final = "taskraft-slot-ms"
_MOMENT: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time, both ends included."""

    begin: datetime
    end: datetime

    @classmethod
    def of(cls, form: Mapping[str, str]) -> Span | None:
        """Return the span that a form names; None: the form names none.

        Raises:
            FormRefused: an end is no instant, or the span is empty.
        """
        if not form.get("from") and not form.get("to"):
            return None
        begin, end = (instant_of(form.get(name, "")) for name in ("from", "to"))
        if end < begin:
            raise FormRefused("The span ends before it begins.")
        return cls(begin, end)


async def times_in(client: AsyncClient, name: str, span: Span, now: datetime) -> Sequence[datetime]:
    """Return the past times of a schedule in a span.

    Raises:
        FormRefused: the span has no past time, or too many.
        TaskraftError: the cluster does not know the schedule, or does not answer.
    """
    found = await client.schedules.times(name, BACKFILL_MAX + 1, after=span.begin - _MOMENT)
    end = min(span.end, now)
    times = [at for at in found if at <= end]
    if not times:
        raise FormRefused("The schedule has no past time in this span.")
    if len(times) > BACKFILL_MAX:
        raise FormRefused(
            f"The span has more than {BACKFILL_MAX} times of the schedule; choose a shorter span."
        )
    return times


def slot_task(task: PlannedTask, at: datetime) -> PlannedTask:
    """Return the task of a schedule for one of its times, as the cluster itself puts it."""
    spec = type(task.spec)()
    spec.CopyFrom(task.spec)
    spec.headers[SLOT_HEADER] = str(round(at.timestamp() * 1_000)).encode()
    return replace(task, spec=spec)


async def schedule(visit: PageVisit) -> PageView:
    """Show one schedule.

    Raises:
        ScheduleNotFound: there is no such schedule.
    """
    name = visit.path["schedule"]
    found, next_times = visit.value(await visit.cluster.schedule(name))
    now_ms = visit.value(await visit.cluster.total()).now_ms
    entered = visit.form or visit.query
    times: Sequence[datetime] = ()
    mistake = ""
    try:
        span = Span.of(entered)
        if span is not None:
            now = datetime.fromtimestamp(now_ms / 1_000, UTC)
            times = await times_in(visit.visitor.access.client, name, span, now)
    except FormRefused as error:
        span, mistake = None, str(error)
    return PageView(
        template="schedule.html",
        title=name,
        values={
            "line": found.message,
            "times": [round(at.timestamp() * 1_000) for at in next_times],
            "now_ms": now_ms,
            "entered": {key: entered.get(key, "") for key in ("from", "to")},
            "backfill": [round(at.timestamp() * 1_000) for at in times],
            "mistake": mistake,
            "forms": ChangeForms(
                f"taskraft schedule show {shell_word(name)}",
                f"client.schedules.times({name!r}, {SCHEDULE_TIMES})",
            ),
        },
        refresh_seconds=3.0,
    )


async def change_one_schedule(
    client: AsyncClient, path: Mapping[str, str], action: str, form: Mapping[str, str]
) -> str:
    """Put the tasks of past times, or change the schedule; return a sentence about the change.

    Raises:
        FormRefused: the form is incomplete, or there is no such change.
        TaskraftError: the cluster refused the change; no task was put.
    """
    if action != "backfill":
        return await change_schedule(client, path, action, form)
    name = path["schedule"]
    span = Span.of(form)
    if span is None:
        raise FormRefused("Enter the begin and the end of the span.")
    found = await client.schedules.get(name)
    if found.task is None:
        raise FormRefused(f"You may not read the tube of the schedule {name}.")
    times = await times_in(client, name, span, datetime.now(UTC))
    batch = Batch()
    for at in times:
        batch.put(slot_task(found.task, at))
    # The same form that is sent twice puts the tasks once.
    seed = repr((name, found.etag, times, form.get("csrf", ""))).encode()
    await client.execute(batch, request_id=f"backfill-{blake2b(seed, digest_size=16).hexdigest()}")
    first, last = (iso_time(round(at.timestamp() * 1_000)) for at in (times[0], times[-1]))
    return f"{name}: put {len(times)} tasks for the times from {first} to {last}"
