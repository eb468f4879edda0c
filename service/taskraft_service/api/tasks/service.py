"""TaskService: put and settle tasks; the other methods are in the modules beside this one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.leases import own_settlements
from taskraft_service.api.rpc.answer_bytes import reserve_answer
from taskraft_service.api.rpc.message_fields import LONG_REQUEST_BYTES
from taskraft_service.api.rpc.methods import (
    ExecutionSite,
    ProposedCall,
    ServiceMethods,
    StreamHandler,
    UnaryCall,
    UnaryMethod,
)
from taskraft_service.api.rpc.status import CallRefused, item_errors
from taskraft_service.api.state.checks import DiskSpaceGuard, TubeAutoCreation
from taskraft_service.api.state.command_executor import CommandExecutor, request_key, result_of
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.answers import settled_message
from taskraft_service.api.tasks.batch import BatchHandler
from taskraft_service.api.tasks.bulk_methods import selector_methods
from taskraft_service.api.tasks.bulk_sweeps import BulkSweepHandlers
from taskraft_service.api.tasks.outcomes import OutcomeHandlers
from taskraft_service.api.tasks.put_checks import ITEMS_PER_TURN, check_later_items, check_put
from taskraft_service.api.tasks.reads import TaskReadHandlers
from taskraft_service.api.tasks.returned_tasks import (
    encode_put_tasks,
    encode_settled_tasks,
    leased_tasks,
    returned_bytes,
)
from taskraft_service.api.tasks.settle_checks import check_settle
from taskraft_service.api.tasks.takes import TakeHandler
from taskraft_service.api.tasks.task_graph import TaskGraphHandler
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.command_codecs.put import PUT, payload_bytes, specs_of
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.capacity_waiters import CapacityWaiters
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.leader.expected_outcomes import ExpectingPut
from taskraft_service.queue.operations.put import PutResult
from taskraft_service.queue.operations.settlements import SettleResult

SERVICE: Final = pb.DESCRIPTOR.services_by_name["TaskService"]


@dataclass(slots=True, frozen=True)
class TaskHandlers:
    """The handlers of TaskService that are in separate modules."""

    takes: TakeHandler
    reads: TaskReadHandlers
    outcomes: OutcomeHandlers
    subscribe: StreamHandler


class TaskService:
    """The methods of TaskService, with the handlers of PutTasks and SettleTasks.

    Args:
        executor: executes commands.
        reader: reads the queue.
        disk: refuses new content while disk space is low.
        capacity_waiters: the puts that wait for tube capacity.
        settings: the settings of the cluster in force.
        payload_bytes_max: the configured maximum size of a payload.
        handlers: the other handlers of the service.
    """

    def __init__(
        self,
        executor: CommandExecutor,
        reader: QueueReader,
        disk: DiskSpaceGuard,
        capacity_waiters: CapacityWaiters,
        settings: EffectiveSettings,
        payload_bytes_max: int,
        handlers: TaskHandlers,
    ) -> None:
        self._executor = executor
        self._reader = reader
        self._disk = disk
        self._capacity_waiters = capacity_waiters
        self._payload_bytes_max = payload_bytes_max
        self._handlers = handlers
        self._auto_creation = TubeAutoCreation(reader, settings)

    def methods(self) -> ServiceMethods:
        """Return the methods of TaskService."""
        handlers, limit = self._handlers, self._payload_bytes_max
        batch = BatchHandler(self._executor, self._reader, self._disk, self._auto_creation, limit)
        leader = ExecutionSite.LEADER
        return ServiceMethods(
            SERVICE,
            (
                UnaryMethod(
                    "PutTasks", pb.PutTasksRequest, leader, self.put_tasks, propose=self.propose_put
                ),
                handlers.outcomes.wait_tasks_method(),
                batch.method(),
                handlers.takes.method(),
                UnaryMethod(
                    "SettleTasks",
                    pb.SettleTasksRequest,
                    leader,
                    self.settle_tasks,
                    propose=self.propose_settle,
                ),
                *selector_methods(self._executor, self._disk, limit, self._reader),
                *BulkSweepHandlers(self._executor, self._reader).methods(),
                *handlers.reads.methods(),
                TaskGraphHandler(self._reader).method(),
            ),
            bidirectional={"Subscribe": handlers.subscribe},
            server_streaming={},
        )

    # ------------------------------------------------------------------------------ put

    def propose_put(self, call: UnaryCall[pb.PutTasksRequest]) -> ProposedCall | None:
        """Propose a put that waits for nothing but its result; None: ``put_tasks`` serves it."""
        request = call.request
        if (
            request.outcome_wait_ms
            or request.room_wait_ms
            or request.return_tasks
            or len(call.raw) > LONG_REQUEST_BYTES
            or len(request.tasks) > ITEMS_PER_TURN
        ):
            return None
        tubes = (request.tube,)
        if self._auto_creation.commands_for(tubes, call):
            return None
        violations = check_put(request, call.raw, self._payload_bytes_max)
        if violations.zeros:
            violations.allow_zeros(lambda: self._auto_creation.defines_zero(request.tube))
        violations.raise_if_any()
        self._disk.check_tubes(tubes)
        return ProposedCall(self._executor.propose(PUT, call, request), _put_answer)

    async def put_tasks(self, call: UnaryCall[pb.PutTasksRequest]) -> pb.PutTasksResponse | bytes:
        """Put tasks; wait for their outcomes if the request asks for that."""
        request, limit = call.request, self._payload_bytes_max
        violations = check_put(request, call.raw, limit, items_max=ITEMS_PER_TURN)
        if len(request.tasks) > ITEMS_PER_TURN:
            await check_later_items(violations, request, call.raw, limit)
        if violations.zeros:
            violations.allow_zeros(lambda: self._auto_creation.defines_zero(request.tube))
        violations.raise_if_any()
        if call.request.outcome_wait_ms:
            return await self._handlers.outcomes.put_and_wait(call, self._put)
        return await self._put(call)

    async def _put(
        self, call: UnaryCall[pb.PutTasksRequest], expecting: ExpectingPut | None = None
    ) -> pb.PutTasksResponse:
        """Put tasks; if allowed, create a missing tube first, in the same entry."""
        if call.request.room_wait_ms:
            applied = await self._put_with_capacity(call, expecting)
        else:
            if expecting is not None:
                expecting.begin_attempt()
            is_needed = call.request.outcome_wait_ms or call.request.return_tasks
            applied = await self._put_whole(call, releases_request=not is_needed)
        answer = pb.PutTasksResponse.FromString(_put_answer(applied))
        if call.request.return_tasks:
            reader = self._reader
            answer.MergeFromString(
                await encode_put_tasks(
                    reader.queues, call.request.tube, answer.task_ids, reader.wall_offset_ms
                )
            )
        return answer

    async def _put_whole(
        self, call: UnaryCall[pb.PutTasksRequest], *, releases_request: bool = False
    ) -> AppliedCommand:
        """Put all tasks; a put with ``room_wait_ms`` that does not fit is refused as a whole."""
        tubes = (call.request.tube,)
        # The disk is checked again for each attempt of a put that waits for capacity.
        self._disk.check_tubes(tubes)
        before = self._auto_creation.commands_for(tubes, call)
        return await self._executor.execute(PUT, call, before, releases_request=releases_request)

    async def _put_with_capacity(
        self, call: UnaryCall[pb.PutTasksRequest], expecting: ExpectingPut | None
    ) -> AppliedCommand:
        """Put all tasks once the tube has capacity; after the wait, put the tasks that fit.

        Raises:
            CallRefused: the queue refused the put; TUBE_FULL if no task fits after the wait.
            NotProposed: this node lost leadership; no task was put.
        """
        request = call.request
        now = asyncio.get_running_loop().time()
        until = now + call.wait_seconds(request.room_wait_ms)
        if not self._capacity_waiters.has_waiting(request.tube):
            applied = await self._try_put(call, expecting)
            if applied is not None:
                return applied
        size = sum(payload_bytes(body) for body in specs_of(call.raw).bodies)
        with self._capacity_waiters.enqueue(request.tube, len(request.tasks), size) as waiting:
            while await waiting.wait(until):
                applied = await self._try_put(call, expecting)
                if applied is not None:
                    return applied
        self._disk.check_tubes((request.tube,))
        if expecting is not None:
            expecting.begin_attempt()
        return await self._executor.execute_encoded(self._without_wait(call), call.deadline)

    async def _try_put(
        self, call: UnaryCall[pb.PutTasksRequest], expecting: ExpectingPut | None
    ) -> AppliedCommand | None:
        """Try to put all tasks; return None if the tube has no capacity for all of them."""
        if expecting is not None:
            expecting.begin_attempt()
        try:
            return await self._put_whole(call)
        except CallRefused as refusal:
            if refusal.reason != error_pb2.Error.TUBE_FULL:
                raise
            if expecting is not None:
                expecting.end_attempt()
            return None

    @staticmethod
    def _without_wait(call: UnaryCall[pb.PutTasksRequest]) -> EncodedCommand:
        """Return the put without its wait for capacity, which puts the tasks that fit."""
        request = pb.PutTasksRequest()
        request.CopyFrom(call.request)
        request.ClearField("room_wait_ms")
        return encode_leader_command(PUT, request, request_key(call))

    # ------------------------------------------------------------------------------ settle

    def propose_settle(self, call: UnaryCall[pb.SettleTasksRequest]) -> ProposedCall | None:
        """Propose settlements that need nothing but their result; None: ``settle_tasks``."""
        request, caller = call.request, call.caller
        if request.return_tasks or len(call.raw) > LONG_REQUEST_BYTES:
            return None
        self._check_settlements(call)
        if caller.is_restricted:
            request = own_settlements(self._reader.queues, request, caller)
        return ProposedCall(self._executor.propose(SETTLE, call, request), _settle_answer)

    def _check_settlements(self, call: UnaryCall[pb.SettleTasksRequest]) -> None:
        """Refuse settlements with violations."""
        violations = check_settle(call.request, self._payload_bytes_max)
        if violations.zeros:
            settlements, caller = call.request.settlements, call.caller
            violations.allow_zeros(lambda: self._reader.defines_zero_for(settlements, caller))
        violations.raise_if_any()

    async def settle_tasks(self, call: UnaryCall[pb.SettleTasksRequest]) -> pb.SettleTasksResponse:
        """Settle the leases of a request."""
        request = call.request
        self._check_settlements(call)
        if call.caller.is_restricted:
            request = own_settlements(self._reader.queues, request, call.caller)
        queues = self._reader.queues
        if request.return_tasks:
            tasks = sum([len(one.tokens) for one in request.settlements])
            content_bytes = returned_bytes(queues, request)
            call.steps.count_content(content_bytes, tasks)
            await reserve_answer(content_bytes)
        leased = leased_tasks(queues, request) if request.return_tasks else ()
        applied = await self._executor.execute_changed(SETTLE, call, request)
        result = result_of(applied, SettleResult)
        answer = settled_message(applied, result)
        if request.return_tasks:
            refused = {one.item for one in result.refused}
            answer.MergeFromString(
                await encode_settled_tasks(
                    queues, request, leased, refused, self._reader.wall_offset_ms
                )
            )
        return answer


def _put_answer(applied: AppliedCommand) -> bytes:
    put = result_of(applied, PutResult)
    return pb.PutTasksResponse(
        task_ids=put.ids,
        errors=item_errors(put.refused) if put.refused else (),
        existing=put.existing,
        revision=applied.index,
    ).SerializeToString()


def _settle_answer(applied: AppliedCommand) -> bytes:
    return settled_message(applied, result_of(applied, SettleResult)).SerializeToString()
