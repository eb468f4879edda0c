"""Name tasks of one tube: by id, by unique key, or by a filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from taskraft_service.queue.entities.filter import Filter
from taskraft_service.queue.values import value


@value
class ByIds:
    """The tasks of these ids."""

    ids: Sequence[int]


@value
class ByKeys:
    """The tasks that have, or had last, these unique keys."""

    keys: Sequence[tuple[str, ...]]


@value
class ByFilter:
    """The tasks that a filter lets through, in order of their ids.

    Args:
        filter: None: all.
        tasks_max: of these at most so many.
        after_id: only those with greater ids: where an earlier answer ended.
    """

    filter: Filter | None
    tasks_max: int
    after_id: int = 0


Selector: TypeAlias = ByIds | ByKeys | ByFilter


def at_most(selector: Selector | None) -> int:
    """Return how many tasks a selector may name; None names none."""
    if selector is None:
        return 0
    if isinstance(selector, ByFilter):
        return selector.tasks_max
    return len(selector.ids if isinstance(selector, ByIds) else selector.keys)
