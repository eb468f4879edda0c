"""Serve puts that wait for room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.tasks.waiting_take import wait_seconds
from taskraft_service.command_codecs.put import payload_bytes, specs_of
from taskraft_service.leader.capacity_waiters import CapacityWaiters
from taskraft_service.leader.command_submitter import AppliedCommand


class Propose(Protocol):
    """Proposes a put."""

    def __call__(
        self, call: UnaryCall[pb.PutTasksRequest], *, whole: bool
    ) -> Awaitable[AppliedCommand]:
        """Put all or nothing where there is no room for all, or (``whole`` False) what fits."""


async def put_when_room(
    capacity_waiters: CapacityWaiters, call: UnaryCall[pb.PutTasksRequest], propose: Propose
) -> AppliedCommand:
    """Put as soon as there is room for all of it; when the time is over, what fits.

    Raises:
        Refused: the queue refused it, at the end also because there is no room (TUBE_FULL).
        NotProposed: this node leads no more; nothing was put.
    """
    request = call.request
    until = asyncio.get_running_loop().time() + wait_seconds(request.room_wait_ms, call)
    if not capacity_waiters.has_waiting(request.tube):
        outcome = await _try(call, propose)
        if outcome is not None:
            return outcome
    size = sum(payload_bytes(body) for body in specs_of(call.raw).bodies)
    with capacity_waiters.enqueue(request.tube, len(request.tasks), size) as place:
        while await place.wait(until):
            outcome = await _try(call, propose)
            if outcome is not None:
                return outcome
    return await propose(call, whole=False)


async def _try(call: UnaryCall[pb.PutTasksRequest], propose: Propose) -> AppliedCommand | None:
    """Try to put everything; None: there is no room for all of it."""
    try:
        return await propose(call, whole=True)
    except CallRefused as refusal:
        if refusal.reason != error_pb2.Error.TUBE_FULL:
            raise
        return None
