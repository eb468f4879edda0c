"""Handle the methods that change tasks which a selector chooses, such as KickTasks.

All of them check the request, propose it as received, and answer with the number of changed tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from google.protobuf.message import Message

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.status import item_errors
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.checks import DiskSpaceGuard
from taskraft_service.api.state.command_executor import CommandExecutor, result_of
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks import selection_checks as checks
from taskraft_service.api.tasks.settle_checks import adds_content
from taskraft_service.command_codecs.command_codec import CommandCodec
from taskraft_service.command_codecs.selected_tasks import (
    BURY,
    CANCEL,
    DELETE,
    KICK,
    MOVE,
    RESTART,
    SNATCH,
    SWITCH,
    UPDATE,
)
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.operations.cancel import CancelResult

M = TypeVar("M", bound=Message)
Answer: TypeAlias = Callable[[AppliedCommand], Message]
CountResponse: TypeAlias = (
    type[pb.BuryTasksResponse]
    | type[pb.DeleteTasksResponse]
    | type[pb.UpdateTasksResponse]
    | type[pb.SnatchTasksResponse]
    | type[pb.RestartTasksResponse]
    | type[pb.SwitchTasksResponse]
    | type[pb.MoveTasksResponse]
)
"""Responses with the same fields."""


def selector_methods(
    executor: CommandExecutor,
    disk: DiskSpaceGuard,
    payload_bytes_max: int,
    reader: QueueReader,
) -> Sequence[AnyUnaryMethod]:
    """Return the methods with a selector.

    Args:
        executor: executes the commands.
        disk: refuses new content while disk space is low.
        payload_bytes_max: the configured maximum size of a payload.
        reader: reads the queue.
    """

    def check_kick(request: pb.KickTasksRequest) -> None:
        _raise_if_any(checks.check_kick(request, payload_bytes_max), reader, request.tube)
        if adds_content(request.update):
            disk.check_tubes((request.tube,))

    def check_update(request: pb.UpdateTasksRequest) -> None:
        _raise_if_any(checks.check_update(request, payload_bytes_max), reader, request.tube)
        if adds_content(request.update):
            disk.check_tubes((request.tube,))

    def check_move(request: pb.MoveTasksRequest) -> None:
        violations = checks.check_move(request, payload_bytes_max)
        _raise_if_any(violations, reader, request.move_to or request.tube)
        if adds_content(request.update):
            disk.check_tubes((request.move_to or request.tube,))

    def raising(check: Callable[[M], Violations]) -> Callable[[M], None]:
        return lambda request: check(request).raise_if_any()

    def method(
        name: str, codec: CommandCodec[M], check: Callable[[M], None], answer: Answer
    ) -> AnyUnaryMethod:
        async def handle(call: UnaryCall[M]) -> Message:
            check(call.request)
            return answer(await executor.execute(codec, call))

        return UnaryMethod(name, codec.message, ExecutionSite.LEADER, handle)

    bury, delete = raising(checks.check_bury), raising(checks.check_delete)
    snatch, switch = raising(checks.check_snatch), raising(checks.check_switch)
    return (
        _kick_method(executor, check_kick, reader.queues.buried_count),
        method("BuryTasks", BURY, bury, _count(pb.BuryTasksResponse)),
        method("DeleteTasks", DELETE, delete, _count(pb.DeleteTasksResponse)),
        method("UpdateTasks", UPDATE, check_update, _count(pb.UpdateTasksResponse)),
        method("SnatchTasks", SNATCH, snatch, _count(pb.SnatchTasksResponse)),
        method("RestartTasks", RESTART, snatch, _count(pb.RestartTasksResponse)),
        method("SwitchTasks", SWITCH, switch, _count(pb.SwitchTasksResponse)),
        method("MoveTasks", MOVE, check_move, _count(pb.MoveTasksResponse)),
        method("CancelTasks", CANCEL, delete, _cancelled),
    )


def _raise_if_any(violations: Violations, reader: QueueReader, tube: str) -> None:
    """Refuse the call if there is a violation, given the tube that the tasks are in afterwards."""
    violations.allow_zeros(lambda: reader.defines_zero((tube,)))
    violations.raise_if_any()


def _kick_method(
    executor: CommandExecutor,
    check: Callable[[pb.KickTasksRequest], None],
    buried_count: Callable[[str], int],
) -> AnyUnaryMethod:
    """Return KickTasks, whose answer has the number of tasks that remain BURIED."""

    async def handle(call: UnaryCall[pb.KickTasksRequest]) -> Message:
        check(call.request)
        outcome = await executor.execute(KICK, call)
        result = result_of(outcome, CountResult)
        return pb.KickTasksResponse(
            count=result.count,
            errors=item_errors(result.refused),
            revision=outcome.index,
            continue_after_id=result.continue_after_id,
            buried=buried_count(call.request.tube),
        )

    return UnaryMethod("KickTasks", pb.KickTasksRequest, ExecutionSite.LEADER, handle)


def _count(response: CountResponse) -> Answer:
    """Return a function that builds an answer with the number of changed tasks."""

    def answer(outcome: AppliedCommand) -> Message:
        result = result_of(outcome, CountResult)
        return response(
            count=result.count,
            errors=item_errors(result.refused),
            revision=outcome.index,
            continue_after_id=result.continue_after_id,
        )

    return answer


def _cancelled(outcome: AppliedCommand) -> Message:
    result = result_of(outcome, CancelResult)
    return pb.CancelTasksResponse(
        asked=result.asked,
        removed=result.removed,
        errors=item_errors(result.refused),
        revision=outcome.index,
        continue_after_id=result.continue_after_id,
    )
