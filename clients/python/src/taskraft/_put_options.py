"""Build the message of a task from the options of `put`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias, TypedDict

from taskraft._arguments import Texts, check_known, choice, text, texts, wrong_type
from taskraft._dependencies import DependsOn, references
from taskraft._durations import Duration, set_durations
from taskraft._instants import instant_ms
from taskraft._message_fields import choices_of, set_choices, set_fields
from taskraft._payload import Payload, encode
from taskraft._retry import POSITIONS, Position, Retry, policy_of
from taskraft.v1 import task_pb2

OnConflict: TypeAlias = Literal[
    "fail", "return_existing", "restart_if_finished", "replace_if_waiting"
]
Headers: TypeAlias = Mapping[str, "str | bytes"]


class PutOptions(TypedDict, total=False):
    """Options of a task; absent options are taken from the tube."""

    priority: int
    """Priority; a lower number is more urgent, unless the tube says otherwise."""
    delay: Duration
    """Time after the put before the task can be taken."""
    ttl: Duration
    """Time to live: the task is removed if it is not finished this long after the put, plus the
    delay."""
    ttr: Duration
    """Time to run: a leased task that is not settled within this time becomes READY again."""
    headers: Headers
    """Headers, sent with the payload."""
    key: str | Sequence[str]
    """Unique key among the unfinished tasks of the tube; may have several parts."""
    on_conflict: OnConflict
    """Effect of the put if the key is in use."""
    key_states: Texts
    """Only tasks in these states conflict, for example "READY" or "DONE"; default: all unfinished
    tasks."""
    key_window: Duration
    """Only tasks that were put within this time conflict; default: no limit."""
    subqueue: str
    """Tasks of one sub-queue are taken in order, by default one at a time."""
    type: str
    """Type of the work, for consumers that process only some types."""
    group: str
    """The task is HELD until this group is started."""
    position: Position
    """Before or behind all READY tasks, instead of the order of priority."""
    content_type: str
    """Media type of the payload; default: derived from its Python type."""
    visible_at: datetime
    """Time at which the task becomes READY, with a time zone; alternative to `delay`."""
    visible_at_ms: int
    """As `visible_at`, in ms since the Unix epoch."""
    retry: Retry
    """Retry policy, instead of the tube's policy."""
    depends_on: Sequence[DependsOn]
    """The task is HELD until these tasks are acknowledged: tasks, "tube/id", ids in the same tube,
    or, in a batch, planned tasks that the batch puts earlier."""
    on_dependency_failure: Literal["cancel", "run"]
    """Effect of a failed dependency: "cancel" the task (default), or "run" it anyway."""


_STATES: Final = choices_of(task_pb2.Task.State)
_CHOICES: Final = (
    ("on_conflict", choices_of(task_pb2.TaskSpec.OnConflict)),
    ("position", POSITIONS),
    ("on_dependency_failure", choices_of(task_pb2.TaskSpec.OnDependencyFailure)),
)
_PLAIN: Final = ("priority", "subqueue", "type", "group", "visible_at_ms", "content_type")
_DURATIONS: Final = (
    ("delay", "delay_ms"),
    ("ttl", "ttl_ms"),
    ("ttr", "ttr_ms"),
    ("key_window", "unique_ms"),
)


def spec_template(options: PutOptions, tube: str) -> task_pb2.TaskSpec:
    """Return a message with all options and no payload; the tasks of one list share it.

    Raises:
        TypeError: an option is unknown, or its value has a wrong type.
        ValueError: a duration or a name is malformed.
    """
    given: Mapping[str, object] = options
    check_known(given, PutOptions, "put has no option")
    spec = task_pb2.TaskSpec()
    set_fields(spec, _PLAIN, given)
    set_durations(spec, _DURATIONS, given)
    if "visible_at" in given:
        spec.visible_at_ms = instant_ms("visible_at", given["visible_at"])
    set_choices(spec, _CHOICES, given)
    for name, content in header_items(options.get("headers", {})):
        spec.headers[name] = content
    spec.unique_key.extend(texts("key", options.get("key", ())))
    spec.unique_states.extend(
        task_pb2.Task.State.ValueType(choice("key_states", state, _STATES))
        for state in texts("key_states", options.get("key_states", ()))
    )
    spec.depends_on.extend(references(options.get("depends_on", ()), tube))
    if "retry" in options:
        spec.retry.CopyFrom(policy_of(options["retry"]))
    return spec


def header_items(headers: object) -> Iterator[tuple[str, bytes]]:
    """Yield names and values of headers.

    Raises:
        TypeError: the headers are not a mapping of strings to strings or bytes.
        ValueError: UTF-8 cannot encode a name or a value.
    """
    expected = "a mapping of names to strings or bytes"
    if not isinstance(headers, Mapping):
        raise wrong_type("headers", expected, headers)
    for name, value in headers.items():
        if not isinstance(name, str):
            raise wrong_type("headers", expected, headers)
        if not isinstance(value, str | bytes):
            raise wrong_type(f"the header {name!r}", "a string or bytes", value)
        content = text(f"the header {name!r}", value).encode() if isinstance(value, str) else value
        yield text("the name of a header", name), content


def spec_of(payload: Payload, shared: task_pb2.TaskSpec | None) -> task_pb2.TaskSpec:
    """Return the message of one task; `shared` is made by `spec_template`, None without options."""
    content, content_type = encode(payload)
    if shared is None:
        if content_type:
            return task_pb2.TaskSpec(payload=content, content_type=content_type)
        return task_pb2.TaskSpec(payload=content)
    spec = task_pb2.TaskSpec()
    spec.CopyFrom(shared)
    spec.payload = content
    if content_type and not spec.content_type:
        spec.content_type = content_type
    return spec
