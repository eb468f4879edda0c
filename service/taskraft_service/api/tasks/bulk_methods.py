"""Serve the methods of TaskService that change tasks which the caller chooses.

They differ in what they ask of the queue, not in how: each checks its request, proposes it as it
came, and tells how many tasks it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from google.protobuf.message import Message

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.status import item_errors
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.command_executor import CommandExecutor, result_of
from taskraft_service.api.state.disk_space import DiskSpaceGuard
from taskraft_service.api.tasks import selection_checks as checks
from taskraft_service.api.tasks.update_checks import brings_content
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
from taskraft_service.queue.entities.count_result import CountResult
from taskraft_service.queue.operations.admin import CancelResult

M = TypeVar("M", bound=Message)
Answer: TypeAlias = Callable[[AppliedCommand], Message]
Counting: TypeAlias = (
    type[pb.KickTasksResponse]
    | type[pb.BuryTasksResponse]
    | type[pb.DeleteTasksResponse]
    | type[pb.UpdateTasksResponse]
    | type[pb.SnatchTasksResponse]
    | type[pb.RestartTasksResponse]
    | type[pb.SwitchTasksResponse]
    | type[pb.MoveTasksResponse]
)
"""Responses that differ in name only."""


def selector_methods(
    mutations: CommandExecutor, disk: DiskSpaceGuard, payload_bytes_max: int
) -> Sequence[AnyUnaryMethod]:
    """Return the methods; ``disk`` and ``payload_bytes_max`` bound what an update may bring."""

    def check_kick(request: pb.KickTasksRequest) -> None:
        checks.kick_violations(request, payload_bytes_max).raise_if_any()
        if brings_content(request.update):
            disk.check_tubes((request.tube,))

    def check_update(request: pb.UpdateTasksRequest) -> None:
        checks.update_violations(request, payload_bytes_max).raise_if_any()
        if brings_content(request.update):
            disk.check_tubes((request.tube,))

    def check_move(request: pb.MoveTasksRequest) -> None:
        checks.move_violations(request, payload_bytes_max).raise_if_any()
        if brings_content(request.update):
            disk.check_tubes((request.move_to or request.tube,))

    def limited(violations: Callable[[M], Violations]) -> Callable[[M], None]:
        return lambda request: violations(request).raise_if_any()

    def method(
        name: str, codec: CommandCodec[M], check: Callable[[M], None], answer: Answer
    ) -> AnyUnaryMethod:
        async def handle(call: UnaryCall[M]) -> Message:
            check(call.request)
            return answer(await mutations.apply(codec, call))

        return UnaryMethod(name, codec.message, ExecutionSite.LEADER, handle)

    bury, delete = limited(checks.bury_violations), limited(checks.delete_violations)
    snatch, switch = limited(checks.snatch_violations), limited(checks.switch_violations)
    return (
        method("KickTasks", KICK, check_kick, _count(pb.KickTasksResponse)),
        method("BuryTasks", BURY, bury, _count(pb.BuryTasksResponse)),
        method("DeleteTasks", DELETE, delete, _count(pb.DeleteTasksResponse)),
        method("UpdateTasks", UPDATE, check_update, _count(pb.UpdateTasksResponse)),
        method("SnatchTasks", SNATCH, snatch, _count(pb.SnatchTasksResponse)),
        method("RestartTasks", RESTART, snatch, _count(pb.RestartTasksResponse)),
        method("SwitchTasks", SWITCH, switch, _count(pb.SwitchTasksResponse)),
        method("MoveTasks", MOVE, check_move, _count(pb.MoveTasksResponse)),
        method("CancelTasks", CANCEL, delete, _cancelled),
    )


def _count(response: Counting) -> Answer:
    """Return what answers with the number of changed tasks."""

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
