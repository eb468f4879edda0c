"""Decode the commands on tubes, and the replicated settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from taskraft.v1 import cluster_service_pb2, tube_service_pb2
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.command_codecs.retry_policy import retry_policy
from taskraft_service.queue.entities.tube_options import OPTION_ROWS, TubeKind, TubeOptions
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

OPTION_NAMES: Final = {row.contract_name: row.name for row in OPTION_ROWS}
"""Names of the options in the core by their names in the contract."""


def _unchanged(setting: object) -> object:
    return setting


_READERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "priority_order": lambda order: order == tube_service_pb2.TubeOptions.HIGHER_FIRST,
    "retry": retry_policy,
    "subqueue_weights": lambda weights: tuple(sorted(weights.items())),
    **{row.name: row.choices for row in OPTION_ROWS if row.choices is not None},
}
"""Convert the options whose values differ in the contract; by their names in the contract."""


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
    given: dict[str, Any] = {
        OPTION_NAMES[field.name]: _READERS.get(field.name, _unchanged)(setting)
        for field, setting in options.ListFields()
    }
    return replace(plain, **given)


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
    "create_tube", tube_service_pb2.CreateTubeRequest, _create_tube, V1
)
UPDATE_TUBE: Final = CommandCodec(
    "update_tube", tube_service_pb2.UpdateTubeRequest, update_tube, V1
)
CONFIGURE: Final = CommandCodec("configure", cluster_service_pb2.ConfigureRequest, _configure, V1)
DROP_TUBE: Final = CommandCodec("drop_tube", tube_service_pb2.DropTubeRequest, _drop_tube, V1)
TRUNCATE_TUBE: Final = CommandCodec(
    "truncate_tube", tube_service_pb2.TruncateTubeRequest, _truncate_tube, V1
)
RELEASE_ALL: Final = CommandCodec(
    "release_all", tube_service_pb2.ReleaseAllRequest, _release_all, V1
)
