"""Turn what the queue shows of a tube into the messages of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.retry_policy import NO_RETRY, RetryPolicy
from taskraft_service.queue.entities.tube_options import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    TubeOptions,
    TubeView,
)

_ABSENT: Final[Mapping[str, int | str]] = {
    "ttl_ms": FOREVER_MS,
    "ttr_ms": FOREVER_MS,
    "retain_ms": FOREVER_MS,
    "priority_min": PRIORITY_MIN,
    "priority_max": PRIORITY_MAX,
    "capacity_tasks": 0,
    "capacity_bytes": 0,
    "buried_max": 0,
    "dead_letter_tube": "",
    "concurrency": 0,
    "subqueue_concurrency": 1,
    "rate_per_second": 0,
    "rate_burst": 0,
    "subqueue_rate_per_second": 0,
    "subqueue_rate_burst": 0,
}
"""Options that are shown only where they are not this."""


def tube_message(view: TubeView) -> tube_service_pb2.Tube:
    """Return a tube with the options in force."""
    return tube_service_pb2.Tube(
        name=view.name,
        kind=tube_service_pb2.Tube.Kind.ValueType(view.kind),
        options=options_message(view.options),
        created_ms=view.created_ms,
        driver=view.driver,
        driver_version=view.driver_version,
        profile=view.profile,
    )


def options_message(own: TubeOptions) -> tube_service_pb2.TubeOptions:
    """Return options as they are in force; what is without limit is absent."""
    Options = tube_service_pb2.TubeOptions  # noqa: N806 - a class
    options = Options(
        priority_order=Options.HIGHER_FIRST if own.higher_first else Options.LOWER_FIRST,
        priority=own.priority,
        delay_ms=own.delay_ms,
        ttl_scope=Options.TtlScope.ValueType(own.ttl_scope),
        ttl_policy=Options.TtlPolicy.ValueType(own.ttl_policy),
        on_ack=Options.OnAck.ValueType(own.on_ack),
        subqueue_weights=dict(own.subqueue_weights),
        put_paused=own.put_paused,
        take_paused=own.take_paused,
        durability=Options.Durability.ValueType(own.durability),
    )
    for name, absent in _ABSENT.items():
        if getattr(own, name) != absent:
            setattr(options, name, getattr(own, name))
    if own.retry != NO_RETRY:
        options.retry.CopyFrom(_retry_message(own.retry))
    return options


def _retry_message(policy: RetryPolicy) -> task_pb2.RetryPolicy:
    Retry = task_pb2.RetryPolicy  # noqa: N806 - a class
    return Retry(
        attempts_max=policy.attempts_max,
        backoff_ms=policy.backoff_ms,
        factor_percent=policy.factor_percent,
        backoff_ms_max=policy.backoff_ms_max,
        jitter_percent=policy.jitter_percent,
        exhausted=Retry.Exhausted.ValueType(policy.exhausted),
        position=task_pb2.TaskSpec.Position.ValueType(policy.position),
    )
