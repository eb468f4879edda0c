"""Decode the commands on tubes, and the replicated settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from taskraft.v1 import cluster_service_pb2, tube_service_pb2
from taskraft_service.command_codecs.command_codec import LOG_FIELDS, CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.command_codecs.retry_policy import retry_policy
from taskraft_service.queue.entities.tube_options import (
    Durability,
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
)
from taskraft_service.queue.entities.tube_profiles import (
    PROFILES,
    TubeProfile,
    defaults_of,
    suitable,
)
from taskraft_service.queue.operations.kick_bury_delete import ReleaseAll
from taskraft_service.queue.operations.settings import Configure
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings

_Options = tube_service_pb2.TubeOptions


def tube_options(
    options: tube_service_pb2.TubeOptions, kind: TubeKind, profile: TubeProfile
) -> TubeOptions:
    """Return the options of a new tube; absent options get the defaults of its profile."""
    merged = merged_options(options, defaults_of(profile, kind))
    if profile.ttr_is_ttl and not options.HasField("ttr_ms"):
        merged = replace(merged, ttr_ms=merged.ttl_ms)
    return suitable(kind, merged) if profile.ignores_unsupported else merged


def merged_options(options: tube_service_pb2.TubeOptions, plain: TubeOptions) -> TubeOptions:
    """Return the options; absent options have the value in ``plain``."""
    has = options.HasField
    order = options.priority_order
    return TubeOptions(
        higher_first=order == _Options.HIGHER_FIRST if order else plain.higher_first,
        priority=options.priority if has("priority") else plain.priority,
        delay_ms=options.delay_ms if has("delay_ms") else plain.delay_ms,
        ttl_ms=options.ttl_ms if has("ttl_ms") else plain.ttl_ms,
        ttr_ms=options.ttr_ms if has("ttr_ms") else plain.ttr_ms,
        put_paused=options.put_paused,
        take_paused=options.take_paused,
        priority_min=options.priority_min if has("priority_min") else plain.priority_min,
        priority_max=options.priority_max if has("priority_max") else plain.priority_max,
        ttl_scope=TtlScope(options.ttl_scope or plain.ttl_scope),
        ttl_policy=TtlPolicy(options.ttl_policy or plain.ttl_policy),
        on_ack=OnAck(options.on_ack or plain.on_ack),
        retain_ms=options.retain_ms if has("retain_ms") else plain.retain_ms,
        capacity_tasks=options.capacity_tasks,
        capacity_bytes=options.capacity_bytes,
        buried_max=options.buried_max,
        retry=retry_policy(options.retry) if has("retry") else plain.retry,
        dead_letter_tube=options.dead_letter_tube,
        concurrency=options.concurrency,
        subqueue_concurrency=(
            options.subqueue_concurrency
            if has("subqueue_concurrency")
            else plain.subqueue_concurrency
        ),
        rate_per_second=options.rate_per_second,
        rate_burst=options.rate_burst,
        subqueue_rate_per_second=options.subqueue_rate_per_second,
        subqueue_rate_burst=options.subqueue_rate_burst,
        subqueue_weights=tuple(sorted(options.subqueue_weights.items())),
        durability=Durability(options.durability or plain.durability),
    )


def _create_tube(
    request: tube_service_pb2.CreateTubeRequest, _raw: bytes, key: RequestKey
) -> CreateTube:
    kind = TubeKind(request.tube.kind)
    return CreateTube(
        name=request.tube.name,
        kind=kind,
        options=tube_options(request.tube.options, kind, PROFILES[request.profile]),
        if_not_exists=request.if_not_exists,
        request_id=key.scope + request.request_id,
        request_hash=key.hash,
        profile=request.profile,
        driver=request.tube.driver,
        driver_version=request.tube.driver_version,
        owner=key.owner.principal,
    )


OPTION_NAMES: Final = {
    name: "higher_first" if name == "priority_order" else name
    for name in _Options.DESCRIPTOR.fields_by_name
}
"""Names of the options in the core by their names in the contract."""


def update_tube(
    request: tube_service_pb2.UpdateTubeRequest, _raw: bytes, key: RequestKey
) -> UpdateTube:
    """Return the command of an update that names only known options."""
    given = {field.name for field, _ in request.options.ListFields()}
    paths = dict.fromkeys(request.update_mask.paths)
    return UpdateTube(
        name=request.name,
        options=merged_options(request.options, TubeOptions()),
        names=[OPTION_NAMES[path] for path in paths if path in given],
        resets=[OPTION_NAMES[path] for path in paths if path not in given],
        request_id=key.scope + request.request_id,
        request_hash=key.hash,
    )


def _configure(
    request: cluster_service_pb2.ConfigureRequest, _raw: bytes, key: RequestKey
) -> Configure:
    given = {field.name: setting for field, setting in request.settings.ListFields()}
    if "auto_create_kind" in given:
        given["auto_create_kind"] = TubeKind(given["auto_create_kind"])
    return Configure(ReplicatedSettings(**given), key.scope + request.request_id, key.hash)


def _drop_tube(request: tube_service_pb2.DropTubeRequest, _raw: bytes, key: RequestKey) -> DropTube:
    return DropTube(request.name, request.force, key.scope + request.request_id, key.hash)


def _truncate_tube(
    request: tube_service_pb2.TruncateTubeRequest, _raw: bytes, key: RequestKey
) -> TruncateTube:
    return TruncateTube(request.name, key.scope + request.request_id, key.hash)


def _release_all(
    request: tube_service_pb2.ReleaseAllRequest, _raw: bytes, key: RequestKey
) -> ReleaseAll:
    return ReleaseAll(request.name, key.scope + request.request_id, key.hash)


CREATE_TUBE: Final = CommandCodec(
    LOG_FIELDS.CREATE_TUBE_FIELD_NUMBER, tube_service_pb2.CreateTubeRequest, _create_tube
)
UPDATE_TUBE: Final = CommandCodec(
    LOG_FIELDS.UPDATE_TUBE_FIELD_NUMBER, tube_service_pb2.UpdateTubeRequest, update_tube
)
CONFIGURE: Final = CommandCodec(
    LOG_FIELDS.CONFIGURE_FIELD_NUMBER, cluster_service_pb2.ConfigureRequest, _configure
)
DROP_TUBE: Final = CommandCodec(
    LOG_FIELDS.DROP_TUBE_FIELD_NUMBER, tube_service_pb2.DropTubeRequest, _drop_tube
)
TRUNCATE_TUBE: Final = CommandCodec(
    LOG_FIELDS.TRUNCATE_TUBE_FIELD_NUMBER, tube_service_pb2.TruncateTubeRequest, _truncate_tube
)
RELEASE_ALL: Final = CommandCodec(
    LOG_FIELDS.RELEASE_ALL_FIELD_NUMBER, tube_service_pb2.ReleaseAllRequest, _release_all
)
