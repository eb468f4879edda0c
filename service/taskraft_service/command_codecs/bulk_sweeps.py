"""Decode the commands on bulk sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from taskraft.v1 import bulk_sweep_pb2
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.request_key import NO_KEY, RequestKey
from taskraft_service.command_codecs.selected_tasks import BURY, DELETE, KICK, MOVE, RESTART
from taskraft_service.queue.entities.bulk_sweep import BulkAction, BulkRequest
from taskraft_service.queue.operations.admin import Restart
from taskraft_service.queue.operations.bulk_sweeps import (
    BulkChange,
    RunBulkSweep,
    StartBulkSweep,
    StopBulkSweep,
)
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.move import Move
from taskraft_service.stubs.log.v1 import log_pb2

RATE_DEFAULT: Final = 1_000

_CODECS: Final[Mapping[str, CommandCodec]] = {  # type: ignore[type-arg]  # of several messages
    "kick": KICK,
    "restart": RESTART,
    "bury": BURY,
    "delete": DELETE,
    "move": MOVE,
}


def _start(message: log_pb2.StartBulkSweep, _raw: bytes, key: RequestKey) -> StartBulkSweep:
    request = message.request
    wanted = BulkRequest(
        tube=request.tube,
        filter=request.filter,
        ids=tuple(request.ids),
        action=BulkAction(request.action),
        move_to=request.move_to,
        bury_reason=request.bury_reason,
        rate_per_second=request.rate_per_second or RATE_DEFAULT,
        principal=message.principal,
    )
    return StartBulkSweep(wanted, key.scope + request.request_id, key.hash)


def _run(message: log_pb2.RunBulkSweep, _raw: bytes, _key: RequestKey) -> RunBulkSweep:
    kind = message.WhichOneof("change")
    change: BulkChange | None = None
    if kind is not None:
        built = _CODECS[kind].build(getattr(message, kind), b"", NO_KEY)
        assert isinstance(built, Kick | Restart | Bury | Delete | Move)
        change = built
    return RunBulkSweep(message.number, message.step, change, message.problem)


def _stop(
    request: bulk_sweep_pb2.StopBulkSweepRequest, _raw: bytes, key: RequestKey
) -> StopBulkSweep:
    return StopBulkSweep(request.number, key.scope + request.request_id, key.hash)


START_BULK_SWEEP: Final = CommandCodec("start_bulk_sweep", log_pb2.StartBulkSweep, _start, V1)
RUN_BULK_SWEEP: Final = CommandCodec("run_bulk_sweep", log_pb2.RunBulkSweep, _run, V1)
STOP_BULK_SWEEP: Final = CommandCodec(
    "stop_bulk_sweep", bulk_sweep_pb2.StopBulkSweepRequest, _stop, V1
)
