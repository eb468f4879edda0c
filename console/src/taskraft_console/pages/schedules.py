"""The schedules: next times, last outcomes, pause and run now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from taskraft import Batch
from taskraft_console.pages.page import FormRefused, PageView, PageVisit

if TYPE_CHECKING:
    from taskraft import AsyncClient, Schedule


async def schedules(visit: PageVisit) -> PageView:
    """Show the schedules, those with errors first, then by their next time."""
    found = visit.value(await visit.cluster.schedules())
    total = visit.value(await visit.cluster.total())
    wanted, only = visit.query.get("q", "").lower(), visit.query.get("only", "")
    lines = [each for each in found if wanted in each.name.lower() and _is_wanted(each, only)]
    lines.sort(key=lambda each: (each.last_error is None, each.paused, each.next_ms, each.name))
    return PageView(
        template="schedules.html",
        title="Schedules",
        values={
            "lines": lines,
            "count": len(found),
            "now_ms": total.now_ms,
            "q": visit.query.get("q", ""),
            "only": only,
        },
        refresh_seconds=3.0,
    )


def _is_wanted(schedule: Schedule, only: str) -> bool:
    match only:
        case "paused":
            return schedule.paused
        case "refused":
            return schedule.last_error is not None
        case _:
            return True


async def change_schedule(
    client: AsyncClient, path: Mapping[str, str], action: str, _: Mapping[str, str]
) -> str:
    """Pause, resume, run or delete a schedule; return a sentence about the change.

    Raises:
        FormRefused: there is no such change.
        TaskraftError: the cluster refused the change.
    """
    name = path["schedule"]
    match action:
        case "pause" | "resume":
            await client.schedules.change(name, paused=action == "pause")
            return f"{name}: {action}d"
        case "run":
            found = await client.schedules.get(name)
            if found.task is None:
                raise FormRefused(f"You may not read the tube of the schedule {name}.")
            batch = Batch()
            batch.put(found.task)
            [result] = await client.execute(batch)
            return f"{name}: put task {found.tube}/{result.put.task_ids[0]}"
        case "delete":
            await client.schedules.delete(name)
            return f"{name}: deleted"
        case _:
            raise FormRefused(f"there is no change {action!r} of a schedule")
