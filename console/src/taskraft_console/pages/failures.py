"""The page of failures: the causes of failed tasks, and a change of all tasks of one cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from taskraft_console.data.failure_report import RETRYING, STAGES, Stage, cause_of, failed_tasks
from taskraft_console.pages.bulk import RATE_DEFAULT, RATE_MAX
from taskraft_console.pages.page import ChangeForms, FormRefused, PageView, PageVisit, integer_of

if TYPE_CHECKING:
    from taskraft import AsyncClient
    from taskraft._async_bulk_sweeps import BulkAction
    from taskraft_console.data.failure_report import FailureGroup

ACTIONS: Final[Mapping[Stage, tuple[BulkAction, ...]]] = {
    "buried": ("kick", "delete", "move"),
    "retrying": ("restart", "bury", "delete"),
}
"""Changes of all tasks of one cause, by the stage of the tasks."""
IDS_MAX: Final = 10_000
"""Maximum number of tasks of one sweep by ids."""
SWEEPS_MAX: Final = 20
"""Maximum number of sweeps that one change starts."""


async def failures(visit: PageVisit) -> PageView:
    """Show the causes of all failed tasks, or of the failed tasks of one tube."""
    stage = stage_of(visit.query)
    tube, opened = visit.query.get("tube", ""), visit.query.get("open", "")
    report = visit.value(await visit.cluster.failures(stage, tube))
    groups = report.groups
    return PageView(
        template="failures.html",
        title="Failures",
        values={
            "groups": groups[:100],
            "group_count": len(groups),
            "tasks": sum(each.count for each in groups),
            "report": report,
            "tube": tube,
            "stage": stage,
            "stages": STAGES,
            "actions": ACTIONS[stage],
            "opened": opened,
            "now_ms": report.now_ms,
            "forms_of": lambda group: forms_of(group, stage),
            "rate": RATE_DEFAULT,
        },
        refresh_seconds=5.0,
    )


def stage_of(given: Mapping[str, str]) -> Stage:
    """Return the stage that an address or a form names; otherwise "buried"."""
    return "retrying" if given.get("stage") == "retrying" else "buried"


def forms_of(group: FailureGroup, stage: Stage) -> ChangeForms:
    """Return a search that finds the tasks of a cause; it may also find tasks of other causes."""
    tube = group.tubes.most_common(1)[0][0]
    where = "state = BURIED" if stage == "buried" else RETRYING
    if group.type:
        quoted = group.type.replace("\\", "\\\\").replace('"', '\\"')
        where += f' AND failure.type = "{quoted}"'
    return ChangeForms.search(tube, where)


async def start_failure_sweep(
    client: AsyncClient,
    visit: PageVisit,
    path: Mapping[str, str],
    action: str,
    form: Mapping[str, str],
) -> str:
    """Start a sweep in each tube with tasks of one cause; return the number of a single sweep.

    If the form names a tube, only the tasks of this tube change.

    Raises:
        FormRefused: the form is incomplete, or no task has the cause any longer.
        TaskraftError: the cluster refuses a sweep.
    """
    stage = stage_of(form)
    chosen = next((each for each in ACTIONS[stage] if each == action), None)
    if chosen is None:
        raise FormRefused(f"there is no change {action!r} of a cause")
    report = visit.value(await visit.cluster.failures(stage, form.get("tube", "")))
    group = report.named(path["fingerprint"])
    if group is None:
        raise FormRefused("No task has this cause any longer.")
    target = form.get("target", "").strip()
    if action == "move" and not target:
        raise FormRefused("Name the tube to which the tasks move.")
    if action == "delete" and form.get("name", "") != group.fingerprint:
        raise FormRefused(f"To delete the tasks, type {group.fingerprint}")
    rate = integer_of(form.get("rate", ""), RATE_DEFAULT, 1, RATE_MAX)
    started: list[int] = []
    for tube in sorted(group.tubes):
        ids = await _tasks_like(
            client, tube, stage, group.fingerprint, visit.settings.timeout_seconds
        )
        for first in range(0, len(ids), IDS_MAX):
            if len(started) == SWEEPS_MAX:
                break
            sweep = await client.start_bulk_sweep(
                tube, chosen, ids=ids[first : first + IDS_MAX], rate=rate,
                to=target if chosen == "move" else "",
                reason="buried in bulk" if chosen == "bury" else "",
            )  # fmt: skip
            started.append(sweep.number)
    if not started:
        raise FormRefused("No task has this cause any longer.")
    return str(started[0]) if len(started) == 1 else ""


async def _tasks_like(
    client: AsyncClient, tube: str, stage: Stage, fingerprint: str, timeout_seconds: float
) -> list[int]:
    """Return the ids of the tasks of a tube and a stage that failed for one cause."""
    found: list[int] = []
    async for page in failed_tasks(client, tube, stage, timeout_seconds):
        found += [task.id for task in page.tasks if cause_of(task) == fingerprint]
    return found
