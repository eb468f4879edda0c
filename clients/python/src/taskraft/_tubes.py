"""Describe a tube that shall be created."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from taskraft._calls import new_request_id
from taskraft._durations import Duration, milliseconds
from taskraft._spec import Retry
from taskraft.v1 import tube_service_pb2

Kind: TypeAlias = Literal["fifo", "fifottl", "limfifottl", "utube", "utubettl"]


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
    concurrency: int
    """At most so many tasks taken at once."""
    retry: Retry
    """How failed tasks are tried again."""
    dead_letter_tube: str
    """Where exhausted and rejected tasks go."""


_PLAIN = ("priority", "capacity_tasks", "capacity_bytes", "concurrency", "dead_letter_tube")
_DURATIONS = (
    ("delay", "delay_ms"),
    ("ttl", "ttl_ms"),
    ("ttr", "ttr_ms"),
    ("retain", "retain_ms"),
)


def create_request(
    name: str, kind: Kind, *, if_not_exists: bool, settings: TubeSettings
) -> tube_service_pb2.CreateTubeRequest:
    """Return the request that creates a tube."""
    given: dict[str, object] = dict(settings)
    unknown = given.keys() - TubeSettings.__annotations__.keys()
    if unknown:
        raise TypeError(f"a tube has no option {', '.join(sorted(unknown))}")
    options = tube_service_pb2.TubeOptions()
    for option in _PLAIN:
        if option in given:
            setattr(options, option, given[option])
    for option, field in _DURATIONS:
        if option in given:
            setattr(options, field, milliseconds(given[option]))  # type: ignore[arg-type]  # checked by the keys' types
    if "priority_order" in settings:
        order = settings["priority_order"].upper()
        options.priority_order = tube_service_pb2.TubeOptions.PriorityOrder.Value(order)
    if "on_ack" in settings:
        options.on_ack = tube_service_pb2.TubeOptions.OnAck.Value(settings["on_ack"].upper())
    if "retry" in settings:
        options.retry.CopyFrom(settings["retry"].message())
    return tube_service_pb2.CreateTubeRequest(
        request_id=new_request_id(),
        tube=tube_service_pb2.Tube(
            name=name, kind=tube_service_pb2.Tube.Kind.Value(kind.upper()), options=options
        ),
        if_not_exists=if_not_exists,
    )
