"""Serve the unary methods of TaskService: put, settle, and those of the modules beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.leases import own_settlements
from taskraft_service.api.rpc.methods import (
    ExecutionSite,
    ServiceMethods,
    StreamHandler,
    UnaryCall,
    UnaryMethod,
)
from taskraft_service.api.rpc.status import item_errors
from taskraft_service.api.state.command_executor import CommandExecutor, idempotency_hash, result_of
from taskraft_service.api.state.disk_space import DiskSpaceGuard
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks import put_checks as task_checks
from taskraft_service.api.tasks.answers import settled_message
from taskraft_service.api.tasks.batch import BatchHandler
from taskraft_service.api.tasks.bulk_methods import selector_methods
from taskraft_service.api.tasks.outcomes import OutcomeHandlers
from taskraft_service.api.tasks.reads import TaskReadHandlers
from taskraft_service.api.tasks.room_waits import put_when_room
from taskraft_service.api.tasks.settle_checks import settle_violations
from taskraft_service.api.tasks.takes import TakeHandler
from taskraft_service.api.tubes.auto_creation import TubeAutoCreation
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.command_codecs.put import PUT
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.queue.operations.put import PutResult
from taskraft_service.queue.operations.settlements import SettleResult

SERVICE: Final = pb.DESCRIPTOR.services_by_name["TaskService"]


@dataclass(slots=True, frozen=True)
class TaskSettings:
    """What a node decides by its configuration."""

    payload_bytes_max: int
    in_force: EffectiveSettings


class TaskService:
    """The methods of TaskService; those that put and settle are handled here.

    Args:
        mutations: applies commands.
        reading: has the queue.
        disk: refuses content where the disk is nearly full.
        outcomes: waits for the ends of tasks.
        takes: takes tasks.
        reads: shows tasks.
        settings: what the node decides.
    """

    def __init__(
        self,
        mutations: CommandExecutor,
        reading: QueueReader,
        disk: DiskSpaceGuard,
        outcomes: OutcomeHandlers,
        takes: TakeHandler,
        reads: TaskReadHandlers,
        settings: TaskSettings,
    ) -> None:
        self._mutations = mutations
        self._reading = reading
        self._disk = disk
        self._outcomes = outcomes
        self._takes = takes
        self._reads = reads
        self._settings = settings
        self._missing = TubeAutoCreation(reading, settings.in_force)
        self._batches = BatchHandler(
            mutations, reading, disk, self._missing, settings.payload_bytes_max
        )

    def methods(self, subscribe: StreamHandler) -> ServiceMethods:
        """Return the methods of the service; ``subscribe`` serves the streaming one."""
        return ServiceMethods(
            SERVICE,
            (
                UnaryMethod("PutTasks", pb.PutTasksRequest, ExecutionSite.LEADER, self.put_tasks),
                self._outcomes.wait_tasks_method(),
                self._batches.method(),
                self._takes.method(),
                UnaryMethod(
                    "SettleTasks", pb.SettleTasksRequest, ExecutionSite.LEADER, self.settle_tasks
                ),
                *selector_methods(self._mutations, self._disk, self._settings.payload_bytes_max),
                *self._reads.methods(),
            ),
            bidirectional={"Subscribe": subscribe},
            server_streaming={},
        )

    # ------------------------------------------------------------------------------ put

    async def put_tasks(self, call: UnaryCall[pb.PutTasksRequest]) -> pb.PutTasksResponse | bytes:
        """Put tasks, and wait for their outcomes if that is asked for."""
        payload_bytes_max = self._settings.payload_bytes_max
        task_checks.put_violations(call.request, call.raw, payload_bytes_max).raise_if_any()
        if call.request.outcome_wait_ms:
            return await self._outcomes.put_and_wait(call, self._put)
        return await self._put(call)

    async def _put(self, call: UnaryCall[pb.PutTasksRequest]) -> pb.PutTasksResponse:
        """Put tasks; with automatic creation, make their tube first, in the same entry."""
        self._disk.check_tubes((call.request.tube,))
        if call.request.room_wait_ms:
            outcome = await put_when_room(self._outcomes.capacity_waiters, call, self._propose_put)
        else:
            outcome = await self._mutations.apply(PUT, call, self._missing_tube(call))
        put = result_of(outcome, PutResult)
        return pb.PutTasksResponse(
            task_ids=put.ids,
            errors=item_errors(put.refused),
            existing=put.existing,
            revision=outcome.index,
        )

    async def _propose_put(
        self, call: UnaryCall[pb.PutTasksRequest], *, whole: bool
    ) -> AppliedCommand:
        """Put all or nothing, or (``whole`` False) what there is room for.

        A call may have waited for a minute: the disk is looked at again.
        """
        self._disk.check_tubes((call.request.tube,))
        if whole:
            return await self._mutations.apply(PUT, call, self._missing_tube(call))
        request = pb.PutTasksRequest()
        request.CopyFrom(call.request)
        request.ClearField("room_wait_ms")
        hash_of_request = idempotency_hash(call)
        encoded = encode_leader_command(PUT, request, hash_of_request)
        return await self._mutations.propose(encoded, call.deadline)

    def _missing_tube(self, call: UnaryCall[pb.PutTasksRequest]) -> Sequence[EncodedCommand]:
        return self._missing.creations((call.request.tube,), call.request.request_id)

    # ------------------------------------------------------------------------------ settle

    async def settle_tasks(self, call: UnaryCall[pb.SettleTasksRequest]) -> pb.SettleTasksResponse:
        """Settle leases."""
        settle_violations(call.request, self._settings.payload_bytes_max).raise_if_any()
        own = own_settlements(self._reading.queues, call.request, call.caller)
        outcome = await self._mutations.apply_as(SETTLE, call, own)
        return settled_message(result_of(outcome, SettleResult), outcome.index)
