"""Describe a tube that shall be created or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, TypedDict

from google.protobuf import field_mask_pb2

from taskraft._arguments import Texts, check_known, choice, flag, text, texts, wrong_type
from taskraft._durations import Duration, set_durations
from taskraft._leader_caller import new_request_id
from taskraft._message_fields import choices_of, set_choices, set_fields
from taskraft._task_spec import Retry, policy_of
from taskraft.v1 import tube_service_pb2

Kind: TypeAlias = Literal["fifo", "fifottl", "limfifottl", "utube", "utubettl", "custom"]


class TubeSettings(TypedDict, total=False):
    """The options of a tube; absent ones have the default of its kind."""

    priority: int
    """Priority of tasks that name none."""
    delay: Duration
    """Delay of tasks that name none."""
    ttl: Duration
    """Time to live of tasks that name none; absent without limit."""
    ttr: Duration
    """Time to run of tasks that name none; absent as long as the session."""
    priority_order: Literal["lower_first", "higher_first"]
    """Which priorities go first; fixed at creation."""
    on_ack: Literal["remove", "keep", "retain"]
    """What becomes of acknowledged tasks."""
    retain: Duration
    """How long finished tasks are kept."""
    capacity_tasks: int
    """At most so many tasks in all states."""
    capacity_bytes: int
    """At most so many bytes of payload."""
    buried_max: int
    """At most so many buried tasks; more are removed in the order of kicks."""
    priority_min: int
    """The lowest priority that a task may have."""
    priority_max: int
    """The highest priority that a task may have."""
    concurrency: int
    """At most so many tasks taken at once."""
    subqueue_concurrency: int
    """At most so many tasks of one sub-queue taken at once; absent 1."""
    subqueue_weights: Mapping[str, int]
    """Shares of sub-queues; others have 1. Absent: they go in order of their first tasks."""
    rate_per_second: int
    """At most so many takes a second, averaged."""
    rate_burst: int
    """So many takes may be made at once after a pause; absent: a second's worth."""
    subqueue_rate_per_second: int
    """At most so many takes a second from each sub-queue, averaged."""
    subqueue_rate_burst: int
    """So many of these may be made at once after a pause; absent: a second's worth."""
    ttl_scope: Literal["untaken", "ready_only", "all"]
    """In which states the time to live ends a task."""
    ttl_policy: Literal["add_delay", "keep_deadline", "reset"]
    """What a delay does to the time to live where a release does not say."""
    put_paused: bool
    """Puts are refused."""
    take_paused: bool
    """Takes find nothing."""
    retry: Retry
    """How failed tasks are tried again."""
    dead_letter_tube: str
    """Where exhausted and rejected tasks go."""
    durability: Literal["replicated", "temporary"]
    """Where the content lives; temporary: in the leader's memory only. Fixed at creation."""


_PLAIN: Final = (
    "priority",
    "priority_min",
    "priority_max",
    "capacity_tasks",
    "capacity_bytes",
    "buried_max",
    "concurrency",
    "subqueue_concurrency",
    "rate_per_second",
    "rate_burst",
    "subqueue_rate_per_second",
    "subqueue_rate_burst",
    "put_paused",
    "take_paused",
    "dead_letter_tube",
)
_DURATIONS: Final = (
    ("delay", "delay_ms"),
    ("ttl", "ttl_ms"),
    ("ttr", "ttr_ms"),
    ("retain", "retain_ms"),
)

_KINDS: Final = choices_of(tube_service_pb2.Tube.Kind)
_CHOICES: Final = (
    ("priority_order", choices_of(tube_service_pb2.TubeOptions.PriorityOrder)),
    ("on_ack", choices_of(tube_service_pb2.TubeOptions.OnAck)),
    ("ttl_scope", choices_of(tube_service_pb2.TubeOptions.TtlScope)),
    ("ttl_policy", choices_of(tube_service_pb2.TubeOptions.TtlPolicy)),
    ("durability", choices_of(tube_service_pb2.TubeOptions.Durability)),
)


def kind_of(argument: str, kind: Kind) -> tube_service_pb2.Tube.Kind.ValueType:
    """Return a kind of tube as the contract writes it."""
    return tube_service_pb2.Tube.Kind.ValueType(choice(argument, kind, _KINDS))


def create_request(
    name: str,
    kind: Kind,
    *,
    driver: str,
    if_not_exists: bool,
    profile: str,
    settings: TubeSettings,
) -> tube_service_pb2.CreateTubeRequest:
    """Return the request that creates a tube.

    Raises:
        TypeError: An option is unknown, or its value of a wrong type.
        ValueError: There is no such kind, or an option cannot have this value.
    """
    return tube_service_pb2.CreateTubeRequest(
        request_id=new_request_id(),
        tube=tube_service_pb2.Tube(
            name=text("name", name),
            kind=kind_of("kind", kind),
            options=_options(settings),
            driver=text("driver", driver),
        ),
        if_not_exists=flag("if_not_exists", if_not_exists),
        profile=text("profile", profile),
    )


def update_request(
    name: str, *, reset: Texts, settings: TubeSettings
) -> tube_service_pb2.UpdateTubeRequest:
    """Return the request that sets some options of a tube, and gives others their default."""
    fields = dict(_DURATIONS)
    named = texts("reset", reset)
    check_known(named, TubeSettings, "a tube has no option")
    paths = [fields.get(option, option) for option in (*settings, *named)]
    return tube_service_pb2.UpdateTubeRequest(
        request_id=new_request_id(),
        name=text("name", name),
        options=_options(settings),
        update_mask=field_mask_pb2.FieldMask(paths=paths),
    )


def _options(settings: TubeSettings) -> tube_service_pb2.TubeOptions:
    given: dict[str, object] = dict(settings)
    check_known(given, TubeSettings, "a tube has no option")
    options = tube_service_pb2.TubeOptions()
    set_fields(options, _PLAIN, given)
    set_durations(options, _DURATIONS, given)
    set_choices(options, _CHOICES, given)
    weights = settings.get("subqueue_weights", {})
    try:
        options.subqueue_weights.update(weights)
    except (TypeError, ValueError):
        raise wrong_type("subqueue_weights", "whole numbers by name", weights) from None
    if "retry" in settings:
        options.retry.CopyFrom(policy_of(settings["retry"]))
    return options
