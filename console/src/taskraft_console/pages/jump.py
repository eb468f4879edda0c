"""Find a page by the name of a tube, a task, a group, a schedule or a session."""

from __future__ import annotations

import re
from typing import Final

from taskraft import errors
from taskraft_console.pages.page import PageVisit

_TASK: Final = re.compile(r"([A-Za-z0-9_.:-]{1,128})[/ #](\d{1,19})")
_TUBE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


async def jump(visit: PageVisit) -> str | None:
    """Return the address of the page that a text names, or None."""
    text = visit.query.get("q", "").strip()
    task = _TASK.fullmatch(text)
    if task is not None:
        return visit.url("tubes", task[1], "tasks", task[2])
    if _TUBE.fullmatch(text):
        try:
            await visit.cluster.tube(text)
        except errors.TubeNotFound:
            pass
        else:
            return visit.url("tubes", text)
    tubes = visit.value(await visit.cluster.tubes()).tubes
    if text and any(text.lower() in each.info.name.lower() for each in tubes):
        return visit.url("tubes", q=text)
    if any(each.name == text for each in visit.value(await visit.cluster.groups())):
        return visit.url("workflows", text)
    if any(each.name == text for each in visit.value(await visit.cluster.schedules())):
        return visit.url("schedules", text)
    sessions = visit.value(await visit.cluster.sessions())
    named = [each for each in sessions if text and text in (each.name, each.session_id[:8])]
    if len(named) == 1:
        return visit.url("workers", named[0].session_id[:8])
    return visit.url("workers", q=text) if named else None
