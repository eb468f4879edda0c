"""Decode settlements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft.v1 import task_service_pb2
from taskraft_service import wire
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.put import POSITIONS
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.command_codecs.retry_policy import failure_of
from taskraft_service.command_codecs.task_update import new_payload, update_of
from taskraft_service.queue.entities.task_view import TaskProgress
from taskraft_service.queue.entities.tube_options import TtlPolicy
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Keep,
    Reject,
    Release,
    Settle,
    Settlement,
    Touch,
)


def _release(tokens: Sequence[int], release: task_service_pb2.Settlement.Release) -> Release:
    return Release(
        tokens=tokens,
        delay_ms=release.delay_ms if release.HasField("delay_ms") else None,
        ttl_policy=TtlPolicy(release.ttl_policy) if release.ttl_policy else None,
        ttl_ms=release.ttl_ms if release.HasField("ttl_ms") else None,
        position=POSITIONS[release.position],
        uncounted=release.uncounted,
        failure=failure_of(release),
        move_to=release.move_to,
        update=update_of(release),
    )


def _ack(tokens: Sequence[int], ack: task_service_pb2.Settlement.Ack) -> Ack:
    if not ack.ByteSize():
        return Ack(tokens)
    return Ack(
        tokens=tokens,
        result=ack.result if ack.HasField("result") else None,
        result_content_type=ack.result_content_type,
        keep=Keep(ack.keep),
        retain_ms=ack.retain_ms if ack.HasField("retain_ms") else None,
        update=new_payload(ack.payload) if ack.HasField("payload") else None,
    )


def _touch(tokens: Sequence[int], touch: task_service_pb2.Settlement.Touch) -> Touch:
    progress = None
    if touch.HasField("progress"):
        progress = TaskProgress(touch.progress.basis_points, touch.progress.note)
    return Touch(tokens, touch.increment_ms, touch.restart, progress)


def _settlement(settlement: task_service_pb2.Settlement) -> Settlement:
    tokens = list(settlement.tokens)
    match settlement.WhichOneof("action"):
        case "ack":
            return _ack(tokens, settlement.ack)
        case "release":
            return _release(tokens, settlement.release)
        case "bury":
            bury = settlement.bury
            return BuryTaken(tokens, failure_of(bury), update_of(bury))
        case "reject":
            return Reject(tokens, failure_of(settlement.reject))
        case "touch":
            return _touch(tokens, settlement.touch)
        case other:
            raise wire.WireMalformed(f"a settlement without a known action: {other}")


def _settle(request: task_service_pb2.SettleTasksRequest, _raw: bytes, key: RequestKey) -> Settle:
    settlements = [_settlement(settlement) for settlement in request.settlements]
    return Settle(settlements, request.atomic, key.scope + request.request_id, key.hash)


SETTLE: Final = CommandCodec("settle", task_service_pb2.SettleTasksRequest, _settle, V1)
