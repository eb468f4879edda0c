"""The page of one tube: counts, limits, the next tasks, the longest leases, and the options."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from taskraft_console.data.cluster_reads import CountedTube
from taskraft_console.pages.page import ChangeForms, FormRefused, PageView, PageVisit, shell_word
from taskraft_console.pages.trends import trends_of
from taskraft_console.pages.tube_options import (
    FIELDS,
    option_values,
    update_forms,
    update_options,
)
from taskraft_console.pages.value_form import entered_values
from taskraft_console.views.readable import readable_duration
from taskraft_console.views.trend import UNKNOWN_TREND

if TYPE_CHECKING:
    from taskraft import AsyncClient, TubeInfo

NEXT_SHOWN: Final = 8
CONSUMERS_SHOWN: Final = 20
_DURATIONS: Final = ("_ms",)
_FIXED: Final = ("priority_order", "durability", "retry", "subqueue_weights")


@dataclass(frozen=True, slots=True)
class OptionLine:
    """One option of a tube."""

    name: str
    text: str


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
    one = shown.tubes[0]
    since = one.counts.oldest_ready_ms
    trends = await trends_of(visit, [one])
    return PageView(
        template="tube.html",
        title=name,
        values={
            "tube": one,
            "now_ms": shown.now_ms,
            "age_ms": max(shown.now_ms - since, 0) if since else 0,
            "limits": list(_limits(one)),
            "trend": trends.get(name, UNKNOWN_TREND),
            "window": "24h" if visit.query.get("window") == "24h" else "1h",
            "next_tasks": visit.value(next_tasks).tasks,
            "held": sorted(visit.value(held).tasks, key=lambda task: task.message.since_ms),
            "consumers": visit.value(consumers)[:CONSUMERS_SHOWN],
            "options": list(option_lines(one.info)),
            "fields": FIELDS,
            "current": option_values(one.info),
            "changes": tube_changes(one),
            **_comparison(visit, one.info),
        },
    )


def _limits(tube: CountedTube) -> Iterator[str]:
    """Yield the reasons why the tube does not lease out more tasks."""
    options, counts = tube.info.options, tube.counts
    if tube.info.quarantined_at:
        yield "the driver failed, so the tube is in quarantine"
    if options.take_paused:
        yield "takes are paused"
    if options.put_paused:
        yield "puts are paused"
    if options.concurrency:
        yield f"concurrency: {counts.tasks.taken} of {options.concurrency} taken"
    if options.rate_per_second:
        yield f"rate: at most {options.rate_per_second} takes per second"
    if counts.tasks.ready and not counts.waiting:
        busy = "all consumers are busy" if counts.tasks.taken else "no consumer takes"
        yield f"{busy}: no take waits for a task"


def option_lines(info: TubeInfo) -> Iterator[OptionLine]:
    """Yield the options in force that are not off."""
    for field in fields(info.options):
        value = getattr(info.options, field.name)
        if value is None or value in (0, "", False) or value == {}:
            continue
        if field.name.endswith("_ms"):
            yield OptionLine(field.name.removesuffix("_ms"), readable_duration(value))
        elif field.name == "retry":
            yield OptionLine("retry", _retry(value))
        elif field.name == "subqueue_weights":
            weights = ", ".join(f"{key} {weight}" for key, weight in sorted(value.items()))
            yield OptionLine(field.name, weights)
        else:
            yield OptionLine(field.name, str(value))


def _retry(policy: object) -> str:
    from taskraft import Retry  # noqa: PLC0415 - only for this check
    from taskraft.cli.output import show_retry  # noqa: PLC0415 - loads the command line

    assert isinstance(policy, Retry)
    return show_retry(policy)


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
