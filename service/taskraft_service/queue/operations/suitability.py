"""Check whether a new task suits its tube."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.option_checks import retry_violations
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.refusals import (
    invalid,
    means_nothing,
    refused_by_driver,
    together,
    within,
)
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_driver import ArrivingTask
from taskraft_service.queue.state.queue_state import QueueState

_TIMED_WISHES: Final = ("priority", "delay_ms", "ttl_ms", "ttr_ms", "visible_at_ms")
"""Attributes that only tubes with priorities and times support."""


def refusal_of_task(ledger: QueueState, tube: QueueTube, task: NewTask) -> Refusal | None:
    """Return why the kind of the tube or the task's group does not accept a task, or None."""
    wrong = together(list(_invalid_fields(tube, task)))
    if wrong is not None:
        return wrong
    refusal = ledger.groups.refusal_to_join(task.group) if task.group else None
    if refusal is None and tube.custom is not None:
        return refused_by_driver(tube, _arrival_of(ledger, tube, task))
    return refusal


def refusal_of_stored(ledger: QueueState, name: str, spec: bytes, path: str) -> Refusal | None:
    """Return why a stored task that is put later does not suit its tube, or None.

    A tube that does not exist yet is not checked; the later put is checked again.
    """
    tube = ledger.tubes.get(name)
    if tube is None or tube.rules.ignores_unsuitable:
        return None
    wrong = together(list(_invalid_fields(tube, ledger.new_task(spec))))
    return None if wrong is None else within(wrong, f"{path}.")


def _invalid_fields(tube: QueueTube, task: NewTask) -> Iterator[Refusal]:
    """Yield the fields of a task that its tube does not support."""
    if task.subqueue and not tube.has_subqueues:
        yield means_nothing(tube, "subqueue", task.subqueue)
    if not tube.has_options:
        for field in _TIMED_WISHES:
            wish = getattr(task, field)
            if wish is not None:
                yield means_nothing(tube, field, wish)
    elif task.priority is not None:
        refusal = tube.priority_refusal("priority", task.priority)
        if refusal is not None:
            yield refusal
    if task.retry is not None:
        for field, text in retry_violations(task.retry, tube.options.dead_letter_tube):
            yield invalid(f"retry.{field}", text, {})


def _arrival_of(ledger: QueueState, tube: QueueTube, task: NewTask) -> ArrivingTask:
    """Return the input of a tube driver for a task that is only checked."""
    priority = tube.options.priority if task.priority is None else task.priority
    now_ms = ledger.now_ms
    return ArrivingTask(0, priority, task.type, task.payload_bytes, 0, now_ms, 0, now_ms)
