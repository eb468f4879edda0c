"""Handle the methods of bulk sweeps: start, read, list and stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft.v1 import bulk_sweep_pb2 as pb
from taskraft_service.access.caller import Caller, PermissionDenied
from taskraft_service.access.permissions import Verb
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.paging import list_fingerprint, page_of
from taskraft_service.api.rpc.status import refused_by_queue
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.command_executor import (
    CommandExecutor,
    act_of_call,
    request_key,
    result_of,
)
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.selection_checks import check_filter
from taskraft_service.command_codecs.bulk_sweeps import START_BULK_SWEEP, STOP_BULK_SWEEP
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.leader.bulk_runner import bounded_filter
from taskraft_service.limits import PAGE_SIZE_MAX, SWEEP_IDS_MAX
from taskraft_service.queue.entities.bulk_sweep import BulkSweep
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.operations.bulk_sweeps import BulkSweepResult
from taskraft_service.queue.state.bulk_sweeps import no_sweep
from taskraft_service.stubs.log.v1 import log_pb2

FILTER_BYTES_MAX: Final = 1_900
RATE_MAX: Final = 10_000
REASON_BYTES_MAX: Final = 200
HIGHEST_ID: Final = (1 << 63) - 1
_DIGITS: Final = 20
_Action = pb.StartBulkSweepRequest


class BulkSweepHandlers:
    """The handlers of the methods of bulk sweeps.

    Args:
        executor: proposes the changes.
        reader: reads the queue.
    """

    def __init__(self, executor: CommandExecutor, reader: QueueReader) -> None:
        self._executor = executor
        self._reader = reader

    def methods(self) -> Sequence[AnyUnaryMethod]:
        """Return the methods."""
        return (
            UnaryMethod(
                "StartBulkSweep", pb.StartBulkSweepRequest, ExecutionSite.LEADER, self.start
            ),
            UnaryMethod("StopBulkSweep", pb.StopBulkSweepRequest, ExecutionSite.LEADER, self.stop),
            UnaryMethod(
                "GetBulkSweep",
                pb.GetBulkSweepRequest,
                ExecutionSite.BY_CONSISTENCY,
                self.get,
                lambda request: self._reader.is_local(request.consistency),
            ),
            UnaryMethod(
                "ListBulkSweeps",
                pb.ListBulkSweepsRequest,
                ExecutionSite.BY_CONSISTENCY,
                self.list_sweeps,
                lambda request: self._reader.is_local(request.consistency),
            ),
        )

    async def start(self, call: UnaryCall[pb.StartBulkSweepRequest]) -> pb.StartBulkSweepResponse:
        """Start a bulk sweep."""
        _check_start(call.request)
        message = log_pb2.StartBulkSweep(request=call.request, principal=call.caller.name)
        encoded = encode_leader_command(
            START_BULK_SWEEP, message, request_key(call), act_of_call(call)
        )
        outcome = await self._executor.execute_encoded(encoded, call.deadline)
        sweep = self._sweep(result_of(outcome, BulkSweepResult).number, call.caller)
        return pb.StartBulkSweepResponse(sweep=sweep_message(sweep), revision=outcome.index)

    async def stop(self, call: UnaryCall[pb.StopBulkSweepRequest]) -> pb.StopBulkSweepResponse:
        """Stop a bulk sweep."""
        request = call.request
        violations = Violations()
        violations.check_request_id(request.request_id, request.client_id)
        violations.raise_if_any()
        sweep = self._sweep(request.number, call.caller)
        if not call.caller.may(Verb.MANAGE, sweep.request.tube):
            raise PermissionDenied(call.caller.name, Verb.MANAGE.value, sweep.request.tube)
        call.managed = (sweep.request.tube,)
        outcome = await self._executor.execute(STOP_BULK_SWEEP, call)
        stopped = self._sweep(result_of(outcome, BulkSweepResult).number, call.caller)
        return pb.StopBulkSweepResponse(sweep=sweep_message(stopped), revision=outcome.index)

    async def get(self, call: UnaryCall[pb.GetBulkSweepRequest]) -> pb.GetBulkSweepResponse:
        """Return a bulk sweep."""
        violations = Violations()
        violations.check_consistency(call.request.consistency)
        violations.raise_if_any()
        await self._reader.queue(call.request.consistency)
        return pb.GetBulkSweepResponse(
            sweep=sweep_message(self._sweep(call.request.number, call.caller))
        )

    async def list_sweeps(
        self, call: UnaryCall[pb.ListBulkSweepsRequest]
    ) -> pb.ListBulkSweepsResponse:
        """Return a page of the bulk sweeps of tubes that the caller may read, newest first."""
        request = call.request
        violations = Violations()
        violations.check_page(request.page_size, request.page_token)
        violations.check_consistency(request.consistency)
        violations.raise_if_any()
        queue = await self._reader.queue(request.consistency)
        page, next_token = page_of(
            [
                sweep
                for sweep in queue.bulk_sweeps()
                if call.caller.may(Verb.READ, sweep.request.tube)
            ],
            lambda sweep: f"{HIGHEST_ID - sweep.number:0{_DIGITS}}",
            request.page_size or PAGE_SIZE_MAX,
            request.page_token,
            list_fingerprint("bulk sweeps"),
        )
        return pb.ListBulkSweepsResponse(
            sweeps=[sweep_message(sweep) for sweep in page], next_page_token=next_token
        )

    def _sweep(self, number: int, caller: Caller) -> BulkSweep:
        """Return a sweep of a tube that the caller may read.

        Raises:
            CallRefused: BULK_SWEEP_NOT_FOUND.
        """
        sweep = self._reader.applied.bulk_sweep(number)
        if sweep is None or not caller.may(Verb.READ, sweep.request.tube):
            raise refused_by_queue(no_sweep(number))
        return sweep


def sweep_message(sweep: BulkSweep) -> pb.BulkSweep:
    """Return a bulk sweep as a message."""
    request = sweep.request
    return pb.BulkSweep(
        number=sweep.number,
        state=pb.BulkSweep.State.ValueType(sweep.state),
        tube=request.tube,
        filter=request.filter,
        ids=len(request.ids),
        action=_Action.Action.ValueType(request.action),
        move_to=request.move_to,
        bury_reason=request.bury_reason,
        rate_per_second=request.rate_per_second,
        principal=request.principal,
        changed=sweep.changed,
        refused=sweep.refused,
        refused_by_reason={Reason(reason).name: count for reason, count in sweep.reasons.items()},
        position=sweep.position,
        position_max=sweep.position_max,
        steps=sweep.steps,
        started_ms=sweep.started_ms,
        ended_ms=sweep.ended_ms,
        problem=sweep.problem,
    )


def _check_start(request: pb.StartBulkSweepRequest) -> None:
    """Check a request.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_tube("tube", request.tube)
    violations.check_text("filter", request.filter, FILTER_BYTES_MAX)
    if len(request.filter.encode()) <= FILTER_BYTES_MAX:
        check_filter(violations, "filter", bounded_filter(request.filter, HIGHEST_ID))
    violations.check_text("bury_reason", request.bury_reason, REASON_BYTES_MAX)
    if request.ids and request.filter:
        violations.add("ids", "cannot be given together with filter")
    violations.check_count("ids", request.ids, SWEEP_IDS_MAX)
    if any(one < 1 for one in request.ids):
        violations.add("ids", "an id is below 1")
    if request.action not in _Action.Action.values() or not request.action:
        violations.add("action", f"{request.action} is not an action")
    if request.action == _Action.MOVE:
        violations.check_tube("move_to", request.move_to)
    elif request.move_to:
        violations.add("move_to", "is for MOVE only")
    if request.bury_reason and request.action != _Action.BURY:
        violations.add("bury_reason", "is for BURY only")
    violations.check_range("rate_per_second", request.rate_per_second, 0, RATE_MAX)
    violations.raise_if_any()
