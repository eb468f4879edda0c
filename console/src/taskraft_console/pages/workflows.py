"""The groups of tasks: state, progress and outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskraft_console.pages.page import FormRefused, PageView, PageVisit

if TYPE_CHECKING:
    from taskraft import AsyncClient, Group


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group with its progress."""

    group: Group
    ended: int
    total: int

    @property
    def percent(self) -> int:
        """Part of the tasks that have ended, 0 to 100; 100 only if all have ended."""
        if not self.total:
            return 0
        return min(round(100 * self.ended / self.total), 99 if self.group.open else 100)


def group_line(group: Group) -> GroupLine:
    """Return a group with its progress."""
    ended = group.processed + group.failed + group.cancelled
    return GroupLine(group, ended, ended + group.open)


async def workflows(visit: PageVisit) -> PageView:
    """Show the groups; open ones first."""
    groups = visit.value(await visit.cluster.groups())
    wanted, state = visit.query.get("q", "").lower(), visit.query.get("state", "").upper()
    lines = [
        group_line(each)
        for each in groups
        if wanted in each.name.lower() and (not state or each.state == state)
    ]
    lines.sort(key=lambda line: (line.group.state in ("ENDED", "CANCELLED"), line.group.name))
    return PageView(
        template="workflows.html",
        title="Workflows",
        values={
            "lines": lines,
            "count": len(groups),
            "q": visit.query.get("q", ""),
            "state": state,
            "states": ("HELD", "STARTED", "ENDED", "CANCELLED"),
        },
        refresh_seconds=3.0,
    )


async def change_group(
    client: AsyncClient, path: Mapping[str, str], action: str, _: Mapping[str, str]
) -> str:
    """Start or cancel a group; return a sentence about the change.

    Raises:
        FormRefused: there is no such change.
        TaskraftError: the cluster refused the change.
    """
    name = path["group"]
    match action:
        case "start":
            return f"{name}: {(await client.groups.start(name)).state}"
        case "cancel":
            return f"{name}: {(await client.groups.cancel(name)).state}"
        case _:
            raise FormRefused(f"there is no change {action!r} of a group")
