"""Select tasks of one tube: by id, by unique key, or by a filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from taskraft_service.queue.entities.filter import Filter
from taskraft_service.queue.values import value


@value
class ByIds:
    """The tasks with these ids."""

    ids: Sequence[int]


@value
class ByKeys:
    """The tasks that have these unique keys, or had them last."""

    keys: Sequence[tuple[str, ...]]


@value
class ByFilter:
    """The tasks that match a filter, in order of their ids.

    Args:
        filter: None matches all tasks.
        tasks_max: maximum number of tasks.
        after_id: only tasks with larger ids; continues an earlier scan.
    """

    filter: Filter | None
    tasks_max: int
    after_id: int = 0


Selector: TypeAlias = ByIds | ByKeys | ByFilter


def at_most(selector: Selector | None) -> int:
    """Return the maximum number of tasks that a selector selects; 0 for None."""
    if selector is None:
        return 0
    if isinstance(selector, ByFilter):
        return selector.tasks_max
    return len(selector.ids if isinstance(selector, ByIds) else selector.keys)
