"""Choose tasks and consumers of an app for a worker, and the weights of their tubes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from taskraft._arguments import texts, whole_number
from taskraft.worker.options import CONCURRENCY_MAX
from taskraft.worker.pools import Consumer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from taskraft.worker.app import App
    from taskraft.worker.options import WorkerOptions
    from taskraft.worker.task import TaskFunction

WEIGHT_MAX: Final = 1_000_000


def chosen_tasks(app: App, options: WorkerOptions) -> list[TaskFunction[..., Any]]:
    """Return the tasks that `tubes` and `only` choose, by name.

    Raises:
        ValueError: a name in `only` is unknown.
    """
    only = texts("only", options.get("only", ()))
    unknown = [name for name in only if name not in app.tasks]
    if unknown:
        raise ValueError(f"the app {app.name} has no task {', '.join(unknown)}")
    return [
        task
        for name, task in sorted(app.tasks.items())
        if (not only or name in only) and _is_in(options, task.tube)
    ]


def chosen_weights(
    tasks: Sequence[TaskFunction[..., Any]], options: WorkerOptions
) -> Mapping[str, int]:
    """Return the weights of tubes by name; empty if there are none.

    Raises:
        ValueError: no task has this tube, or a weight is not an integer from 1 to 1 000 000.
    """
    tubes = {task.tube for task in tasks}
    weights = options.get("weights", {})
    unknown = sorted(set(weights) - tubes)
    if unknown:
        raise ValueError(f"weights: no task of this worker has the tube {', '.join(unknown)}")
    return {
        tube: whole_number(f"the weight of {tube}", weight, 1, WEIGHT_MAX)
        for tube, weight in weights.items()
    }


def chosen_urgency(options: WorkerOptions) -> tuple[int | None, int]:
    """Return the priority of urgent tasks and the number of their slots; None and 0: no such slots.

    Raises:
        ValueError: one of both options is missing or invalid.
    """
    slots = whole_number("urgent_slots", options.get("urgent_slots", 0), 0, CONCURRENCY_MAX)
    bound = options.get("urgent_bound")
    if (bound is None) is not (slots == 0):
        raise ValueError("urgent_slots and urgent_bound need each other")
    return bound, slots


def urgent_slots(
    tasks: Sequence[TaskFunction[..., Any]], pool: str, slots: int, urgent: int
) -> int:
    """Return the number of urgent slots of a pool: 0 if none of the tasks can use such slots.

    Raises:
        ValueError: no slots are left for other tasks.
    """
    if not any(
        task.pool == pool and task.batch is None and task.concurrency is None for task in tasks
    ):
        return 0
    if urgent >= slots:
        raise ValueError(
            f"urgent_slots must be less than the {slots} slots of the pool {pool}, not {urgent}"
        )
    return urgent


def chosen_consumers(app: App, options: WorkerOptions) -> list[Consumer]:
    """Return new consumers of the tubes that `tubes` chooses; `only` chooses no consumer."""
    if options.get("only"):
        return []
    return [Consumer(*one) for one in app.consumers if _is_in(options, one[0])]


def _is_in(options: WorkerOptions, tube: str) -> bool:
    return any(fnmatchcase(tube, one) for one in texts("tubes", options.get("tubes", "*")))
