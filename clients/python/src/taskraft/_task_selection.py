"""Select tasks for a call, and describe changes of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict

from taskraft._arguments import check_known, texts, wrong_type, wrong_value
from taskraft._durations import Duration, set_durations
from taskraft._message_fields import set_fields
from taskraft._payload import Payload, encode
from taskraft._put_options import Headers, header_items
from taskraft.v1 import task_pb2

if TYPE_CHECKING:
    from taskraft import errors

Key: TypeAlias = "str | Sequence[str]"
"""A unique key: one part, or several."""


@dataclass(frozen=True, slots=True)
class Where:
    """Selects all tasks that match a filter, for example ``Where("state = BURIED")``."""

    filter: str
    """Filter expression, see docs/filters.md."""
    report: Callable[[int], object] | None = None
    """Called with the number of tasks that each call has changed, because many tasks are changed in
    several calls. Runs in the event loop of the client."""
    report_id: Callable[[int], object] | None = None
    """Called with the id up to which the calls have examined the tasks, before each further call.
    Runs in the event loop of the client."""


class Keys:
    """Selects tasks by their unique keys: ``Keys("a", ("b", "1"))``."""

    __slots__ = ("keys",)

    def __init__(self, *keys: Key) -> None:
        self.keys: Final = tuple(tuple(texts("key", key)) for key in keys)

    def __repr__(self) -> str:
        return f"Keys{self.keys!r}"


TaskSelection: TypeAlias = "int | Iterable[int] | Keys | Where"
"""One task or several, by id, by key, or by a filter."""
NamedTasks: TypeAlias = "int | Iterable[int] | Keys"
"""One task or several, by id or key; the response has a result for each."""


class TaskChanges(TypedDict, total=False):
    """Changes of a task; absent fields stay unchanged."""

    payload: Payload
    """New payload, with the media type of its Python type."""
    content_type: str
    """New media type."""
    headers: Headers
    """Headers to set; other headers stay."""
    headers_remove: Iterable[str]
    """Names of headers to remove."""
    priority: int
    """New priority."""
    delay: Duration
    """New delay from now; 0 ends the delay. Only for READY and DELAYED tasks."""
    ttl: Duration
    """New TTL from now."""
    ttr: Duration
    """New TTR, from the next take on."""


_DURATIONS: Final = (("delay", "delay_ms"), ("ttl", "ttl_ms"), ("ttr", "ttr_ms"))


def selector_of(chosen: TaskSelection) -> task_pb2.TaskSelector:
    """Return the selection as a message."""
    if isinstance(chosen, Where):
        return task_pb2.TaskSelector(filter=chosen.filter)
    if isinstance(chosen, Keys):
        keys = [task_pb2.UniqueKey(parts=key) for key in chosen.keys]
        return task_pb2.TaskSelector(keys=keys)
    try:
        return task_pb2.TaskSelector(ids=[chosen] if isinstance(chosen, int) else chosen)
    except (TypeError, ValueError) as error:
        refuse = wrong_type if isinstance(error, TypeError) else wrong_value
        raise refuse("tasks", "an id, several ids, Keys(...) or Where(...)", chosen) from None


def count_of(selector: task_pb2.TaskSelector) -> int:
    """Return the number of tasks that a selector names by id or key; 0 for a filter."""
    return len(selector.ids) + len(selector.keys)


def name_selected_task(
    error: errors.TaskraftError, tube: str, selector: task_pb2.TaskSelector, item: int
) -> None:
    """Add the tube and the id or key of the selected task to the error message."""
    if item < len(selector.ids):
        name = f"{tube}/{selector.ids[item]}"
    elif item < count_of(selector):
        name = f"{tube}, key {'/'.join(selector.keys[item - len(selector.ids)].parts)}"
    else:
        return
    error.args = (f"{name}: {error.message}",)


def update_of(changes: TaskChanges) -> task_pb2.TaskUpdate:
    """Return the changes as a message.

    Raises:
        TypeError: a change is unknown.
    """
    given: Mapping[str, object] = changes
    check_known(given, TaskChanges, "a task has no changeable field")
    update = task_pb2.TaskUpdate()
    if "payload" in changes:
        update.payload, content_type = encode(changes["payload"])
        if content_type:
            update.content_type = content_type
    set_fields(update, ("content_type", "priority"), given)
    for name, content in header_items(changes.get("headers", {})):
        update.headers_set[name] = content
    update.headers_remove.extend(texts("headers_remove", changes.get("headers_remove", ())))
    set_durations(update, _DURATIONS, given)
    return update
