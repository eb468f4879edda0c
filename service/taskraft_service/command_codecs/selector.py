"""Decode task selectors."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import task_pb2
from taskraft_service.languages.filter_text import read_filter
from taskraft_service.queue.operations.selection import ByFilter, ByIds, ByKeys, Selector

TASKS_MAX_DEFAULT: Final = 1_000


def selector_of(selector: task_pb2.TaskSelector) -> Selector:
    """Return a checked selector; without ids and keys it is a filter.

    Raises:
        FilterMalformed: the filter does not parse; in the log, it is a filter of a later version.
    """
    if selector.ids:
        return ByIds(list(selector.ids))
    if selector.keys:
        return ByKeys([tuple(key.parts) for key in selector.keys])
    return ByFilter(
        read_filter(selector.filter),
        selector.tasks_max or TASKS_MAX_DEFAULT,
        selector.after_id,
    )


def names_nothing(selector: task_pb2.TaskSelector) -> bool:
    """Return whether a selector is empty; its meaning depends on the request."""
    return not (selector.ids or selector.keys or selector.filter)
