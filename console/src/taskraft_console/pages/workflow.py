"""The page of one group: its progress, and its tasks with their dependencies as a drawn graph."""

from __future__ import annotations

from taskraft import errors
from taskraft_console.data.group_tasks import text_filter
from taskraft_console.pages.page import ChangeForms, PageView, PageVisit
from taskraft_console.pages.workflows import group_line
from taskraft_console.views.task_graph import GraphTask, draw_graph, graph_task

ROWS_MAX = 100
"""Maximum number of tasks in the table."""
STATES = ("BURIED", "TAKEN", "READY", "DELAYED", "HELD")
"""Order of the states in the table; ended tasks come last."""


async def workflow(visit: PageVisit) -> PageView:
    """Show one group.

    Raises:
        GroupNotFound: there is no such group.
    """
    name = visit.path["group"]
    groups = visit.value(await visit.cluster.groups())
    group = next((each for each in groups if each.name == name), None)
    if group is None:
        raise errors.GroupNotFound(f"there is no group {name!r}")
    end = group.end_task
    found = visit.value(await visit.cluster.group_tasks(name, end.tube if end else ""))
    tasks = [graph_task(task.message) for task in found.tasks]
    return PageView(
        template="workflow.html",
        title=name,
        values={
            "line": group_line(group),
            "end": end,
            "abort": group.abort_task,
            "graph": draw_graph(tasks),
            "tasks": sorted(tasks, key=_place)[:ROWS_MAX],
            "buried": [task for task in tasks if task.state == "BURIED"],
            "count": len(tasks),
            "found": found,
            "where": text_filter("group", name),
            "forms": ChangeForms.search(end.tube if end else "TUBE", text_filter("group", name)),
        },
        refresh_seconds=3.0,
    )


def _place(task: GraphTask) -> int:
    """Return the place of a task in the table by its state."""
    return STATES.index(task.state) if task.state in STATES else len(STATES)
