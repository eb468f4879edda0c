"""The bulk sweeps of the cluster: start, progress, result and stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft.v1.bulk_sweep_pb2 import BulkSweep, StartBulkSweepRequest
from taskraft_console.pages.page import (
    RELOAD_SECONDS,
    ChangeForms,
    FormRefused,
    PageView,
    PageVisit,
    integer_of,
    shell_word,
)

if TYPE_CHECKING:
    from taskraft import AsyncClient
    from taskraft._async_bulk_sweeps import BulkAction

ACTIONS: Final[tuple[BulkAction, ...]] = ("kick", "restart", "bury", "delete", "move")
RATE_DEFAULT: Final = 1_000
RATE_MAX: Final = 10_000
ASKED_FOR_NAME: Final = frozenset({"delete"})
"""Actions for which the user must type the name of the tube."""
SWEEPS_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class SweepLine:
    """One bulk sweep."""

    sweep: BulkSweep
    state: str
    action: str
    percent: int
    """Part of the tasks that was examined, 0 to 100."""
    milliseconds: int
    """Duration so far."""
    per_second: float
    """Mean number of changed and refused tasks per second."""
    is_open: bool
    forms: ChangeForms


def sweep_line(sweep: BulkSweep, now_ms: int) -> SweepLine:
    """Return a bulk sweep for the page."""
    milliseconds = max((sweep.ended_ms or now_ms) - sweep.started_ms, 0)
    handled = sweep.changed + sweep.refused
    return SweepLine(
        sweep,
        BulkSweep.State.Name(sweep.state).lower(),
        StartBulkSweepRequest.Action.Name(sweep.action).lower(),
        100 * sweep.position // max(sweep.position_max, 1),
        milliseconds,
        1_000 * handled / milliseconds if milliseconds else 0.0,
        not sweep.ended_ms,
        ChangeForms(f"taskraft bulk show {sweep.number}", f"client.bulk_sweep({sweep.number})"),
    )


async def bulk(visit: PageVisit) -> PageView:
    """Show the sweeps, the newest first, or one sweep."""
    number = visit.path.get("number", "")
    found: Sequence[BulkSweep]
    if number:
        wanted = integer_of(number, 0, 0, 2**62)
        found = [visit.value(await visit.cluster.sweep(wanted))]
    else:
        found = visit.value(await visit.cluster.sweeps())
    now_ms = visit.value(await visit.cluster.total()).now_ms
    return PageView(
        template="bulk.html",
        title=f"Sweep {number}" if number else "Bulk sweeps",
        values={
            "lines": [sweep_line(each, now_ms) for each in found[:SWEEPS_SHOWN]],
            "number": number,
        },
        refresh_seconds=1.0,
        reload_seconds=RELOAD_SECONDS,
    )


def start_forms(tube: str, where: str) -> ChangeForms:
    """Return the start of a sweep as a command and as Python."""
    words = f" --where {shell_word(where)}" if where else ""
    return ChangeForms(
        f"taskraft bulk start kick {shell_word(tube)}{words}",
        f'client.start_bulk_sweep({tube!r}, "kick"{f", {where!r}" if where else ""})',
    )


async def start_search_sweep(
    client: AsyncClient,
    _visit: PageVisit,
    _path: Mapping[str, str],
    action: str,
    form: Mapping[str, str],
) -> str:
    """Start a sweep for all tasks of a tube that match a filter; return its number.

    Raises:
        FormRefused: the form is incomplete.
        TaskraftError: the cluster refuses the filter or the tube.
    """
    tube, where = form.get("tube", ""), form.get("where", "")
    chosen = next((each for each in ACTIONS if each == form.get("action")), None)
    if chosen is None or action != "start":
        raise FormRefused("Choose what to do with the tasks.")
    target = form.get("target", "").strip()
    if chosen == "move" and not target:
        raise FormRefused("Name the tube to which the tasks move.")
    if chosen in ASKED_FOR_NAME and form.get("name", "") != tube:
        raise FormRefused(f"To {chosen} all tasks that match, type the name of the tube: {tube}")
    sweep = await client.start_bulk_sweep(
        tube,
        chosen,
        where,
        to=target if chosen == "move" else "",
        reason="buried in bulk" if chosen == "bury" else "",
        rate=integer_of(form.get("rate", ""), RATE_DEFAULT, 1, RATE_MAX),
    )
    return str(sweep.number)


async def stop_sweep(
    client: AsyncClient,
    _visit: PageVisit,
    path: Mapping[str, str],
    action: str,
    _form: Mapping[str, str],
) -> str:
    """Stop a sweep; return its number.

    Raises:
        FormRefused: there is no such change.
        TaskraftError: the cluster refused the stop.
    """
    if action != "stop":
        raise FormRefused(f"there is no change {action!r} of a sweep")
    sweep = await client.stop_bulk_sweep(integer_of(path.get("number", ""), 0, 0, 2**62))
    return str(sweep.number)
