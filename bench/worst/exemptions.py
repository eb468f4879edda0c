"""Reasons why lists of the most expensive requests are shorter than their maxima."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SELECTORS: Final = ("Bury", "Cancel", "Kick", "Move", "Restart", "Snatch", "Switch", "Update")
_STORED: Final = ("CreateGroup", "CreateSchedule", "SetEndTask", "UpdateSchedule")
"""Methods with a task that is put later."""
_SCALERS: Final = ("GetMetricSpec", "GetMetrics", "IsActive", "StreamIsActive")

ONE_WAY: Final = "a selector has either ids or keys"
SHARED: Final = "the items of a batch are limited together, and a put and moves have them"
CONTRADICTION: Final = "the check of the field knows fewer values"

EXEMPT: Final[Mapping[tuple[str, str], str]] = {
    **dict.fromkeys(((f"{name}Tasks", "TaskSelector.keys") for name in _SELECTORS), ONE_WAY),
    **dict.fromkeys(((f"{name}Tasks", "UniqueKey.parts") for name in _SELECTORS), ONE_WAY),
    ("WaitTasks", "TaskSelector.keys"): ONE_WAY,
    ("WaitTasks", "UniqueKey.parts"): ONE_WAY,
    ("GetTasks", "TaskSelector.ids"): ONE_WAY,
    ("DeleteTasks", "TaskSelector.ids"): ONE_WAY,
    ("ExecuteBatch", "TaskSelector.keys"): ONE_WAY,
    ("ExecuteBatch", "UniqueKey.parts"): ONE_WAY,
    ("ExecuteBatch", "PutTasksRequest.tasks"): SHARED,
    ("ExecuteBatch", "TaskSelector.ids"): SHARED,
    ("ExecuteBatch", "Settlement.tokens"): SHARED,
    ("ExecuteBatch", "SettleTasksRequest.settlements"): SHARED,
    **dict.fromkeys(
        ((name, "TaskSpec.depends_on") for name in _STORED),
        "a task that is put later depends on no other",
    ),
    **dict.fromkeys(
        ((name, "TaskSpec.unique_states") for name in (*_STORED, "ExecuteBatch", "PutTasks")),
        CONTRADICTION,
    ),
    **dict.fromkeys(((name, "ScaledObjectRef.scalerMetadata") for name in _SCALERS), CONTRADICTION),
    ("ListGroups", "ListGroupsRequest.states"): CONTRADICTION,
    ("CommitCursor", "FeedCursor.next_seq"): "the feed of the node has fewer partitions",
    ("WatchFeed", "FeedCursor.next_seq"): "the feed of the node has fewer partitions",
    ("ReadChanges", "ReadChangesRequest.contents"): "the encoding COLUMNS has no contents",
}
"""Reasons by the name of the method, and by message and field of the list."""
