"""The options of a tube."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, TypedDict

from google.protobuf import field_mask_pb2

from taskraft._arguments import Texts, check_known, choice, flag, text, texts, wrong_type
from taskraft._durations import Duration, set_durations
from taskraft._leader_caller import new_request_id
from taskraft._message_fields import choices_of, set_choices, set_fields
from taskraft._retry import Retry, policy_of
from taskraft.v1 import tube_service_pb2

Kind: TypeAlias = Literal["fifo", "fifottl", "limfifottl", "utube", "utubettl", "custom"]


class TubeSettings(TypedDict, total=False):
    """The options of a tube; absent options have the default of the tube's kind."""

    priority: int
    """Default priority of tasks."""
    delay: Duration
    """Default delay of tasks."""
    ttl: Duration
    """Default TTL of tasks; absent: no limit."""
    ttr: Duration
    """Default TTR of tasks; absent: a lease lasts as long as its session."""
    priority_order: Literal["lower_first", "higher_first"]
    """Order of urgency of the priorities; fixed at creation."""
    on_ack: Literal["remove", "keep", "retain"]
    """Treatment of acknowledged tasks."""
    retain: Duration
    """Time for which finished tasks are kept."""
    capacity_tasks: int
    """Maximum number of tasks in all states."""
    capacity_bytes: int
    """Maximum payload bytes of all tasks."""
    buried_max: int
    """Maximum number of buried tasks; above it, tasks are removed in kick order."""
    priority_min: int
    """Lowest number that a priority may have."""
    priority_max: int
    """Highest number that a priority may have."""
    concurrency: int
    """Maximum number of TAKEN tasks."""
    subqueue_concurrency: int
    """Maximum number of TAKEN tasks per sub-queue; default 1."""
    subqueue_weights: Mapping[str, int]
    """Weights by sub-queue, default 1 each. Absent: sub-queues are served in order of their first
    tasks."""
    rate_per_second: int
    """Maximum takes per second, averaged."""
    rate_burst: int
    """Maximum takes at once after a pause; default: the takes of one second."""
    subqueue_rate_per_second: int
    """Maximum takes per second from each sub-queue, averaged."""
    subqueue_rate_burst: int
    """Maximum takes at once from a sub-queue after a pause; default: the takes of one second."""
    ttl_scope: Literal["untaken", "ready_only", "all"]
    """States in which the TTL can end a task."""
    ttl_policy: Literal["add_delay", "keep_deadline", "reset"]
    """Effect of a delay on the TTL, unless a release sets another policy."""
    put_paused: bool
    """True: puts are refused."""
    take_paused: bool
    """True: takes find no tasks."""
    retry: Retry
    """Retry policy of failed tasks."""
    dead_letter_tube: str
    """Tube for exhausted and rejected tasks."""
    durability: Literal["replicated", "temporary"]
    """Storage of the tasks: replicated, or temporary in the leader's memory only; fixed at
    creation.
    """


_FIELDS: Final = tube_service_pb2.TubeOptions.DESCRIPTOR.fields_by_name
_CHOICES: Final = tuple(
    (option, choices_of(getattr(tube_service_pb2.TubeOptions, choices.name)))
    for option in TubeSettings.__annotations__
    if option in _FIELDS and (choices := _FIELDS[option].enum_type) is not None
)
_DURATIONS: Final = tuple(
    (option, f"{option}_ms") for option in TubeSettings.__annotations__ if option not in _FIELDS
)
_PLAIN: Final = tuple(
    option
    for option in TubeSettings.__annotations__
    if option in _FIELDS
    and _FIELDS[option].enum_type is None
    and _FIELDS[option].message_type is None
)
_KINDS: Final = choices_of(tube_service_pb2.Tube.Kind)


def kind_of(argument: str, kind: Kind) -> tube_service_pb2.Tube.Kind.ValueType:
    """Return a kind of tube as a number."""
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
        TypeError: an option is unknown, or its value has a wrong type.
        ValueError: the kind is unknown, or an option has an invalid value.
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
    """Return the request that sets some options of a tube, and resets others to their default."""
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
        raise wrong_type("subqueue_weights", "a mapping of names to integers", weights) from None
    if "retry" in settings:
        options.retry.CopyFrom(policy_of(settings["retry"]))
    return options
