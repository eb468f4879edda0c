"""Make what creates, empties and removes tubes from the client's request."""

from __future__ import annotations

from typing import Final

from service.forms.form import IN_LOG, Form
from service.forms.retry import retry_policy
from service.queue import commands as core
from taskraft.v1 import tube_service_pb2


def tube_options(options: tube_service_pb2.TubeOptions) -> core.TubeOptions:
    """Return the options with their defaults applied."""
    has = options.HasField
    plain = core.TubeOptions()
    return core.TubeOptions(
        higher_first=options.priority_order == tube_service_pb2.TubeOptions.HIGHER_FIRST,
        priority=options.priority,
        delay_ms=options.delay_ms,
        ttl_ms=options.ttl_ms if has("ttl_ms") else core.FOREVER_MS,
        ttr_ms=options.ttr_ms if has("ttr_ms") else core.FOREVER_MS,
        put_paused=options.put_paused,
        take_paused=options.take_paused,
        priority_min=options.priority_min if has("priority_min") else core.PRIORITY_MIN,
        priority_max=options.priority_max if has("priority_max") else core.PRIORITY_MAX,
        ttl_scope=core.TtlScope(options.ttl_scope or plain.ttl_scope),
        ttl_policy=core.TtlPolicy(options.ttl_policy or plain.ttl_policy),
        on_ack=core.OnAck(options.on_ack or plain.on_ack),
        retain_ms=options.retain_ms if has("retain_ms") else core.FOREVER_MS,
        capacity_tasks=options.capacity_tasks,
        capacity_bytes=options.capacity_bytes,
        buried_max=options.buried_max,
        retry=retry_policy(options.retry) if has("retry") else core.NO_RETRY,
        dead_letter_tube=options.dead_letter_tube,
        concurrency=options.concurrency,
        subqueue_concurrency=(
            options.subqueue_concurrency
            if has("subqueue_concurrency")
            else plain.subqueue_concurrency
        ),
        rate_per_second=options.rate_per_second,
        rate_burst=options.rate_burst,
        subqueue_weights=tuple(sorted(options.subqueue_weights.items())),
        durability=core.Durability(options.durability or plain.durability),
    )


def _create_tube(
    request: tube_service_pb2.CreateTubeRequest, _raw: bytes, hash_: int
) -> core.CreateTube:
    return core.CreateTube(
        name=request.tube.name,
        kind=core.TubeKind(request.tube.kind),
        options=tube_options(request.tube.options),
        if_not_exists=request.if_not_exists,
        request_id=request.request_id,
        request_hash=hash_,
        profile=request.profile,
        driver=request.tube.driver,
        driver_version=request.tube.driver_version,
    )


def _drop_tube(request: tube_service_pb2.DropTubeRequest, _raw: bytes, hash_: int) -> core.DropTube:
    return core.DropTube(request.name, request.force, request.request_id, hash_)


def _truncate_tube(
    request: tube_service_pb2.TruncateTubeRequest, _raw: bytes, hash_: int
) -> core.TruncateTube:
    return core.TruncateTube(request.name, request.request_id, hash_)


def _release_all(
    request: tube_service_pb2.ReleaseAllRequest, _raw: bytes, hash_: int
) -> core.ReleaseAll:
    return core.ReleaseAll(request.name, request.request_id, hash_)


CREATE_TUBE: Final = Form(
    IN_LOG.CREATE_TUBE_FIELD_NUMBER, tube_service_pb2.CreateTubeRequest, _create_tube
)
DROP_TUBE: Final = Form(IN_LOG.DROP_TUBE_FIELD_NUMBER, tube_service_pb2.DropTubeRequest, _drop_tube)
TRUNCATE_TUBE: Final = Form(
    IN_LOG.TRUNCATE_TUBE_FIELD_NUMBER, tube_service_pb2.TruncateTubeRequest, _truncate_tube
)
RELEASE_ALL: Final = Form(
    IN_LOG.RELEASE_ALL_FIELD_NUMBER, tube_service_pb2.ReleaseAllRequest, _release_all
)
