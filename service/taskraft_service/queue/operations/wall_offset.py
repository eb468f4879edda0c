"""Correct the wall offset: wall time minus cluster time."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    Idempotent,
    replicated,
)
from taskraft_service.queue.operations.ready_prediction import predict_nothing
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.values import value


@value
class SetWallOffset(Idempotent):
    """Set the wall offset; the leader decides when and how far.

    Leases, delays and all other deadlines stay: they are in cluster time. Answer: ``CountResult``,
    1 if the offset has changed.
    """

    wall_offset_ms: int


def set_wall_offset(state: QueueState, command: SetWallOffset) -> CountResult:
    """Set the wall offset, so that wall time may go back; timestamps of events never do."""
    if command.wall_offset_ms == state.wall_offset_ms:
        return CountResult(0)
    state.event_floor_ms = max(state.event_floor_ms, state.stamp.at_ms)
    state.wall_offset_ms = command.wall_offset_ms
    return CountResult(1)


DEFINITION: Final = CommandDefinition(
    SetWallOffset, set_wall_offset, predict=predict_nothing, side=replicated, answer=None
)
