"""The page of one tube: counts, limits, the next tasks, the longest leases, and the options."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from taskraft_console.data.group_tasks import text_filter
from taskraft_console.data.subqueue_counts import KINDS, SubqueueCounts
from taskraft_console.data.tube_reads import CountedTube
from taskraft_console.pages.options_in_force import option_lines
from taskraft_console.pages.page import ChangeForms, FormRefused, PageView, PageVisit, shell_word
from taskraft_console.pages.time_window import shown_window
from taskraft_console.pages.trends import trends_of
from taskraft_console.pages.tube_options import (
    FIELDS,
    option_values,
    update_forms,
    update_options,
)
from taskraft_console.pages.value_form import entered_values
from taskraft_console.views.trend import UNKNOWN_TREND, Trend

if TYPE_CHECKING:
    from taskraft import AsyncClient, Task, TubeInfo

NEXT_SHOWN: Final = 8
CONSUMERS_SHOWN: Final = 20


async def tube(visit: PageVisit) -> PageView:
    """Show one tube."""
    name = visit.path["tube"]
    reads = visit.cluster
    found, next_tasks, held, consumers = await asyncio.gather(
        reads.tube(name),
        reads.tasks(name, "", order="taking", size=NEXT_SHOWN),
        reads.tasks(name, "state = TAKEN", size=NEXT_SHOWN),
        reads.consumers(name),
    )
    shown = visit.value(found)
    one = shown.tube
    since = one.counts.oldest_ready_ms
    trend = (await trends_of(visit, [one])).get(name, UNKNOWN_TREND)
    takeable = visit.value(next_tasks).tasks
    window = await shown_window(visit)
    return PageView(
        template="tube.html",
        title=name,
        status=400 if visit.failure else 200,
        values={
            "tube": one,
            "now_ms": shown.now_ms,
            "age_ms": max(shown.now_ms - since, 0) if since else 0,
            "limits": list(limits_of(one, trend, takeable)),
            "trend": trend,
            "window": window,
            "next_tasks": takeable,
            "held": sorted(visit.value(held).tasks, key=lambda task: task.message.since_ms),
            "consumers": visit.value(consumers)[:CONSUMERS_SHOWN],
            "options": option_lines(one.info),
            "subqueues": await _subqueues(visit, one.info),
            "subqueue_filter": partial(text_filter, "subqueue"),
            "fields": FIELDS,
            "current": option_values(one.info),
            "changes": tube_changes(one),
            **_comparison(visit, one.info),
        },
    )


async def _subqueues(visit: PageVisit, info: TubeInfo) -> SubqueueCounts | None:
    """Return the sub-queues of a tube; None: tubes of its kind have none."""
    if info.kind not in KINDS:
        return None
    return visit.value(await visit.cluster.subqueues(info.name))


def limits_of(tube: CountedTube, trend: Trend, takeable: Sequence[Task]) -> Iterator[str]:
    """Yield the reasons why the tube does not lease out more tasks.

    ``takeable`` has the tasks that a take can get now.
    """
    options, counts = tube.info.options, tube.counts
    if tube.info.quarantined_at:
        yield "the driver failed, so the tube is in quarantine"
    if options.take_paused:
        yield "takes are paused"
    if options.put_paused:
        yield "puts are paused"
    if options.concurrency and counts.tasks.taken >= options.concurrency:
        yield f"concurrency: {counts.tasks.taken} of {options.concurrency} tasks are taken"
    leased = (trend.ack_rate or 0.0) + (trend.fail_rate or 0.0)
    if counts.tasks.ready and options.rate_per_second and leased >= options.rate_per_second * 0.9:
        yield f"rate: about {leased:.0f} of at most {options.rate_per_second} takes per second"
    if counts.tasks.ready and not takeable and tube.info.kind in KINDS:
        yield "sub-queues: each sub-queue with a ready task is at its limit of taken tasks"
    elif counts.tasks.ready and not counts.waiting:
        busy = "all consumers are busy" if counts.tasks.taken else "no consumer takes"
        yield f"{busy}: no take waits for a task"


def _comparison(visit: PageVisit, info: TubeInfo) -> dict[str, object]:
    """Return the differences between the entered options and the options in force."""
    entered = entered_values(visit, FIELDS, option_values(info))
    return {
        "entered": entered.form,
        "option_changes": entered.changes,
        "mistake": entered.mistake,
        "update": update_forms(info.name, entered.changes),
    }


@dataclass(frozen=True, slots=True)
class TubeChange:
    """A change of a whole tube."""

    name: str
    label: str
    explanation: str
    forms: ChangeForms
    is_dangerous: bool = False
    asks_name: bool = False
    """True: the user must type the name of the tube."""


def tube_changes(tube: CountedTube) -> tuple[TubeChange, ...]:
    """Return the changes that a tube allows now."""
    name, options = tube.info.name, tube.info.options
    word = shell_word(name)

    def pause(which: str, *, is_paused: bool) -> TubeChange:
        verb = "resume" if is_paused else "pause"
        return TubeChange(
            f"{verb}-{which}s",
            f"{verb.capitalize()} {which}s",
            {
                "pause-take": "Consumers get no further tasks. Taken tasks go on.",
                "pause-put": "Puts are refused with TUBE_PAUSED.",
            }.get(f"{verb}-{which}", f"The tube allows {which}s again."),
            ChangeForms(
                f"taskraft tube update {word} --{verb}-{which}s",
                f"client.update_tube({name!r}, {which}_paused={not is_paused})",
            ),
        )

    return (
        pause("take", is_paused=options.take_paused),
        pause("put", is_paused=options.put_paused),
        TubeChange(
            "kick-all",
            "Kick all buried",
            f"{tube.counts.tasks.buried} buried tasks become ready.",
            ChangeForms(
                f"taskraft kick {word} --where 'state = BURIED'",
                f'client.tube({name!r}).kick(ids=Where("state = BURIED"))',
            ),
        ),
        TubeChange(
            "release-all",
            "Release all",
            f"{tube.counts.tasks.taken} taken tasks are taken away from their holders.",
            ChangeForms("", f"client.tube({name!r}).release_all()"),
            is_dangerous=True,
        ),
        TubeChange(
            "truncate",
            "Truncate",
            f"{tube.counts.tasks.total} tasks are removed for good.",
            ChangeForms(f"taskraft tube truncate {word}", f"client.truncate_tube({name!r})"),
            is_dangerous=True,
            asks_name=True,
        ),
        TubeChange(
            "drop",
            "Drop",
            f"The tube and its {tube.counts.tasks.total} tasks are removed for good.",
            ChangeForms(f"taskraft tube drop {word}", f"client.drop_tube({name!r})"),
            is_dangerous=True,
            asks_name=True,
        ),
    )


async def change_tube(
    client: AsyncClient, path: Mapping[str, str], action: str, form: Mapping[str, str]
) -> str:
    """Make a change of a tube; return a sentence about the change.

    Raises:
        FormRefused: the form is incomplete.
        TaskraftError: the cluster refused the change.
    """
    name = path["tube"]
    if action in ("truncate", "drop") and form.get("name", "") != name:
        raise FormRefused(f"To {action} the tube, type its name: {name}")
    match action:
        case "pause-takes" | "resume-takes":
            await client.update_tube(name, take_paused=action == "pause-takes")
        case "pause-puts" | "resume-puts":
            await client.update_tube(name, put_paused=action == "pause-puts")
        case "kick-all":
            from taskraft import Where  # noqa: PLC0415 - one use

            return f"{await client.tube(name).kick(ids=Where('state = BURIED'))} tasks kicked"
        case "release-all":
            return f"{await client.tube(name).release_all()} tasks released"
        case "truncate":
            return f"{await client.truncate_tube(name)} tasks removed"
        case "drop":
            return f"tube dropped with {await client.drop_tube(name)} tasks"
        case "update":
            return await update_options(client, name, form)
        case _:
            raise FormRefused(f"there is no change {action!r} of a tube")
    return f"{action.replace('-', ' ')}: done"
