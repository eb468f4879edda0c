"""Show tasks that failed and are gone, as far as the queue remembers them."""

from __future__ import annotations

from dataclasses import replace

from taskraft.v1 import task_pb2
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.selector import ByIds, ByKeys
from taskraft_service.queue.entities.task_view import State, TaskView
from taskraft_service.queue.queue import Queue


def select_with_failed(
    queue: Queue, tube: str, selector: ByIds | ByKeys
) -> list[TaskView | Refusal]:
    """Return chosen tasks of a tube in order, also those that failed and are gone; or why not."""
    found = queue.select_tasks(tube, selector)
    if not any(isinstance(one, Refusal) for one in found):
        return found
    failed = queue.failed_tasks(tube, selector)
    return [
        gone if isinstance(one, Refusal) and gone is not None else one
        for one, gone in zip(found, failed, strict=True)
    ]


def is_gone(view: TaskView) -> bool:
    """Tell whether a task is one that failed and is gone."""
    return view.state is State.GONE


def with_unique_key(view: TaskView) -> TaskView:
    """Return a task that is gone with its unique key, if that is all that is left of its content.

    One that ends while somebody waits for it is told with its content.
    """
    if view.body or not is_gone(view):
        return view
    spec = task_pb2.TaskSpec(unique_key=view.extras.unique_key)
    return replace(view, body=spec.SerializeToString())
