"""Record acts of management, each in the log entry of its effect."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.entities.refusal import CountResult, Refusal
from taskraft_service.queue.operations.cancel import CancelResult
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    Idempotent,
    predict_nothing,
    replicated,
)
from taskraft_service.queue.state.audit_table import AuditRecord
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.values import value


@value
class RecordAct(Idempotent):
    """Record an act that is no command of the log, such as a change of the members.

    Answer: ``CountResult``.
    """

    act: ManagedAct


def record_act(state: QueueState, command: RecordAct) -> CountResult:
    """Record the act; its effect is not known to the queue."""
    add_act(state, command.act, CountResult(0))
    return CountResult(1)


def add_act(state: QueueState, act: ManagedAct, result: object) -> None:
    """Record an act with the result of its command."""
    tasks = 0
    if isinstance(result, CountResult):
        tasks = result.count
    elif isinstance(result, CancelResult):
        tasks = result.asked + result.removed
    refused = int(result.reason) if isinstance(result, Refusal) else 0
    record = AuditRecord(state.stamp.at_ms, state.index, tasks, refused, act)
    state.audit.add(record, state.limits)


DEFINITION: Final = CommandDefinition(
    RecordAct, record_act, predict=predict_nothing, side=replicated, answer=None
)
