"""Build what the contract calls a TaskSpec from the options of `put`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypedDict

from taskraft._arguments import Texts, check_known, choice, hundredths, texts, wrong_type
from taskraft._dependencies import DependsOn, references
from taskraft._durations import Duration, milliseconds, set_durations
from taskraft._message_fields import choices_of, set_choices, set_field, set_fields
from taskraft._payload import Payload, encode
from taskraft.v1 import task_pb2

OnConflict: TypeAlias = Literal[
    "fail", "return_existing", "restart_if_finished", "replace_if_waiting"
]
Position: TypeAlias = Literal["front", "back"]
Headers: TypeAlias = Mapping[str, "str | bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Say how often and how late a task is tried again after a failure or a lost lease.

    The server does this, so that a task that kills its consumers ends too.
    """

    attempts_max: int = 0
    """How often the task may be taken; 0 without limit."""
    backoff: Duration = 0
    """Delay before the second attempt."""
    factor: float = 2.0
    """What the delay is multiplied by from attempt to attempt."""
    backoff_max: Duration = 0
    """Upper limit of the delay; 0 one day."""
    jitter: float = 0.0
    """By which share, 0 to 1, a delay may be shortened."""
    exhausted: Literal["bury", "dead_letter", "remove"] = "bury"
    """What happens when the attempts are used up."""
    position: Position | None = None
    """Before or behind newer work instead of at the old place."""

    def message(self) -> task_pb2.RetryPolicy:
        """Return the policy as the contract writes it."""
        policy = task_pb2.RetryPolicy(
            backoff_ms=milliseconds(self.backoff, "backoff"),
            backoff_ms_max=milliseconds(self.backoff_max, "backoff_max"),
            exhausted=task_pb2.RetryPolicy.Exhausted.ValueType(
                choice("exhausted", self.exhausted, EXHAUSTED)
            ),
        )
        set_field(policy, "attempts_max", self.attempts_max)
        set_field(policy, "factor_percent", hundredths("factor", self.factor), "factor * 100")
        set_field(policy, "jitter_percent", hundredths("jitter", self.jitter), "jitter * 100")
        if self.position is not None:
            policy.position = position_of(self.position)
        return policy


class PutOptions(TypedDict, total=False):
    """The options of a task; what is absent is taken from the tube."""

    priority: int
    """Lower is more urgent, unless the tube says otherwise."""
    delay: Duration
    """The task is not handed out before this long after the put."""
    ttl: Duration
    """The task is removed when it is not finished this long after the put, plus the delay."""
    ttr: Duration
    """Time to run: a taken task that is not settled in this time becomes ready again."""
    headers: Headers
    """Carried beside the payload."""
    key: str | Sequence[str]
    """Unique among the unfinished tasks of the tube; may have several parts."""
    on_conflict: OnConflict
    """What to do when the key is in use."""
    key_states: Texts
    """A task with the key stands in the way in these states only, e.g. "READY" or "DONE"; all
    unfinished ones by default."""
    key_window: Duration
    """A task with the key stands in the way for so long from its put; however old by default."""
    subqueue: str
    """Tasks of one sub-queue are taken in order, by default one at a time."""
    type: str
    """Kind of work, for consumers that handle only some kinds."""
    group: str
    """The task is held until this group is started."""
    position: Position
    """Before or behind all ready tasks instead of in order of priority."""
    content_type: str
    """Media type of the payload instead of the one found by its Python type."""
    visible_at_ms: int
    """An absolute alternative to the delay: milliseconds since the Unix epoch."""
    retry: Retry
    """Overrides the tube's policy."""
    depends_on: Sequence[DependsOn]
    """The task is held until these are acknowledged: tasks, "tube/id", ids in the same tube; in a
    batch also what `Tube.task` made for an earlier put of it."""
    on_dependency_failure: Literal["cancel", "run"]
    """What becomes of it when one of them fails: it is cancelled too (default), or runs anyway."""


EXHAUSTED: Final = choices_of(task_pb2.RetryPolicy.Exhausted)
POSITIONS: Final = choices_of(task_pb2.TaskSpec.Position)
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
    """Return a spec for a tube with everything but the payload; tasks of one list share it.

    Raises:
        TypeError: There is no such option, or its value is of the wrong type.
        ValueError: A duration or a name is malformed.
    """
    given: Mapping[str, object] = options
    check_known(given, PutOptions, "put has no option")
    spec = task_pb2.TaskSpec()
    set_fields(spec, _PLAIN, given)
    set_durations(spec, _DURATIONS, given)
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
    """Yield names and contents of headers.

    Raises:
        TypeError: They are not texts or bytes by name.
    """
    expected = "texts or bytes by name"
    if not isinstance(headers, Mapping):
        raise wrong_type("headers", expected, headers)
    for name, value in headers.items():
        if not isinstance(name, str):
            raise wrong_type("headers", expected, headers)
        if not isinstance(value, str | bytes):
            raise wrong_type(f"the header {name!r}", "a text or bytes", value)
        yield name, value.encode() if isinstance(value, str) else value


def policy_of(retry: Retry) -> task_pb2.RetryPolicy:
    """Return a retry policy as the contract writes it.

    Raises:
        TypeError: It is none, or has a value of a wrong type.
    """
    if not isinstance(retry, Retry):
        raise wrong_type("retry", "a Retry(...)", retry)
    return retry.message()


def position_of(position: Position) -> task_pb2.TaskSpec.Position.ValueType:
    """Return a place in the order of ready tasks as the contract writes it."""
    return task_pb2.TaskSpec.Position.ValueType(choice("position", position, POSITIONS))


def spec_of(payload: Payload, shared: task_pb2.TaskSpec | None) -> task_pb2.TaskSpec:
    """Return the spec of one task; `shared` is made by `spec_template`."""
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
