"""TubeService: create, change, list and drop tubes, and their statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import tube_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import ALL_TUBES, Verb
from taskraft_service.api.rpc.methods import (
    AnyUnaryMethod,
    ExecutionSite,
    ServiceMethods,
    UnaryCall,
    UnaryMethod,
)
from taskraft_service.api.rpc.paging import list_fingerprint, page_of
from taskraft_service.api.rpc.request_steps import MESSAGE_STEPS, RequestSteps
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import check_page_request
from taskraft_service.api.state.command_executor import (
    CommandExecutor,
    act_of_call,
    request_key,
    result_of,
    scoped_request_id,
)
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tubes.answers import (
    differences,
    statistics_message,
    total_message,
    tube_message,
)
from taskraft_service.api.tubes.checks import (
    check_create_tube,
    check_tube_name,
    check_update_tube,
)
from taskraft_service.command_codecs.tubes import (
    CREATE_TUBE,
    DROP_TUBE,
    RELEASE_ALL,
    TRUNCATE_TUBE,
    UPDATE_TUBE,
)
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.languages.patterns import PatternSet
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.leader.unlogged_calls import UnloggedCalls
from taskraft_service.leader.waiters import Waiters
from taskraft_service.limits import PAGE_SIZE_MAX
from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.operations.tubes import TubeResult
from taskraft_service.queue.queue import Queue

SERVICE: Final = pb.DESCRIPTOR.services_by_name["TubeService"]
_STATISTICS: Final = pb.GetStatisticsResponse.TUBES_FIELD_NUMBER
_STATISTICS_STEPS: Final = 100
"""Number of steps that stand for the statistics of one tube."""


TOTAL_SLICE: Final = 500
"""Number of tubes whose statistics are added in one turn of the event loop."""


async def _selected(
    queue: Queue, wanted: Sequence[str], caller: Caller, steps: RequestSteps
) -> Sequence[str]:
    """Return the requested tubes that the caller may read, in order of name.

    A caller with the permission on all tubes is not checked per tube.

    Raises:
        CallRefused: TOO_MANY_STEPS.
    """
    if not wanted and caller.may(Verb.READ, ALL_TUBES):
        return queue.tube_names()
    patterns = PatternSet(wanted or (ALL_TUBES,))
    return await steps.matching(queue.tube_names(), patterns, partial(caller.may, Verb.READ))


class TubeService:
    """The methods of TubeService."""

    def __init__(
        self,
        executor: CommandExecutor,
        reader: QueueReader,
        waiters: Waiters,
        unlogged_calls: UnloggedCalls,
        others: Sequence[AnyUnaryMethod],
        creates_tubes: Callable[[], bool],
    ) -> None:
        """Handle tubes.

        ``others`` are the methods with handlers of their own. ``creates_tubes`` returns whether a
        put creates missing tubes.
        """
        self._executor = executor
        self._reader = reader
        self._waiters = waiters
        self._unlogged_calls = unlogged_calls
        self._others = others
        self._creates_tubes = creates_tubes

    def methods(self) -> ServiceMethods:
        """Return the methods of TubeService."""
        return ServiceMethods(
            SERVICE,
            (
                UnaryMethod(
                    "CreateTube", pb.CreateTubeRequest, ExecutionSite.LEADER, self.create_tube
                ),
                UnaryMethod(
                    "UpdateTube", pb.UpdateTubeRequest, ExecutionSite.LEADER, self.update_tube
                ),
                UnaryMethod("DropTube", pb.DropTubeRequest, ExecutionSite.LEADER, self.drop_tube),
                UnaryMethod(
                    "TruncateTube", pb.TruncateTubeRequest, ExecutionSite.LEADER, self.truncate_tube
                ),
                UnaryMethod(
                    "ReleaseAll", pb.ReleaseAllRequest, ExecutionSite.LEADER, self.release_all
                ),
                UnaryMethod(
                    "ListTubes",
                    pb.ListTubesRequest,
                    ExecutionSite.BY_CONSISTENCY,
                    self.list_tubes,
                    lambda request: self._reader.is_local(request.consistency),
                ),
                UnaryMethod(
                    "GetStatistics",
                    pb.GetStatisticsRequest,
                    ExecutionSite.BY_CONSISTENCY,
                    self.get_statistics,
                    lambda request: self._reader.is_local(request.consistency),
                ),
                *self._others,
            ),
            bidirectional={},
            server_streaming={},
        )

    async def create_tube(self, call: UnaryCall[pb.CreateTubeRequest]) -> pb.CreateTubeResponse:
        """Create a tube."""
        check_create_tube(call.request)
        if call.request.tube.kind == pb.Tube.CUSTOM:
            outcome = await self._create_custom(call)
        else:
            outcome = await self._executor.execute(CREATE_TUBE, call)
        created = result_of(outcome, TubeResult)
        tube = tube_message(created.tube, outcome.wall_offset_ms)
        return pb.CreateTubeResponse(
            tube=tube,
            existed=created.existed,
            revision=outcome.index,
            differences=differences(call.request, created.tube) if created.existed else (),
        )

    async def _create_custom(self, call: UnaryCall[pb.CreateTubeRequest]) -> AppliedCommand:
        """Create a tube with a custom driver; the log stores the driver's version."""
        request = pb.CreateTubeRequest()
        request.CopyFrom(call.request)
        drivers = self._reader.applied.drivers
        found = drivers.get(request.tube.driver)
        version = request.tube.driver_version
        if found is None or version not in (0, found.version):
            installed = ", ".join(f"{name} {one.version}" for name, one in sorted(drivers.items()))
            raise CallRefused(
                error_pb2.Error.DRIVER_MISSING,
                f"the leader lacks the driver {request.tube.driver!r} {version or ''}".rstrip(),
                {"driver": request.tube.driver, "installed": installed},
            )
        request.tube.driver_version = found.version
        encoded = encode_leader_command(CREATE_TUBE, request, request_key(call), act_of_call(call))
        return await self._executor.execute_encoded(encoded, call.deadline)

    async def update_tube(self, call: UnaryCall[pb.UpdateTubeRequest]) -> pb.UpdateTubeResponse:
        """Change the options of a tube."""
        check_update_tube(
            call.request, self._reader.applied.refusal_of_tube_update, self._reader.defines_zero
        )
        outcome = await self._executor.execute(UPDATE_TUBE, call)
        updated = result_of(outcome, TubeResult)
        tube = tube_message(updated.tube, outcome.wall_offset_ms)
        return pb.UpdateTubeResponse(tube=tube, revision=outcome.index)

    async def drop_tube(self, call: UnaryCall[pb.DropTubeRequest]) -> pb.DropTubeResponse:
        """Drop a tube; refuse if consumers wait on it, which only the leader knows."""
        check_tube_name(call.request.name, call.request.request_id, call.request.client_id)
        name, queue = call.request.name, self._reader.applied
        waiting = self._waiters.waiting_count(name)
        is_repeated = queue.remembers(scoped_request_id(call))
        if waiting and not call.request.force and not is_repeated and queue.tube(name):
            raise CallRefused(
                error_pb2.Error.TUBE_BUSY,
                f"the tube has {waiting} waiting consumers; set force to drop it",
                {"tube": name, "waiting": str(waiting)},
            )
        outcome = await self._executor.execute(DROP_TUBE, call)
        # After a retry of an earlier drop, a new tube may have the name.
        if self._reader.applied.tube(name) is None and not self._creates_tubes():
            self._waiters.tube_dropped(name)
        return pb.DropTubeResponse(
            tasks=result_of(outcome, CountResult).count, revision=outcome.index
        )

    async def truncate_tube(
        self, call: UnaryCall[pb.TruncateTubeRequest]
    ) -> pb.TruncateTubeResponse:
        """Delete all tasks of a tube."""
        check_tube_name(call.request.name, call.request.request_id, call.request.client_id)
        outcome = await self._executor.execute(TRUNCATE_TUBE, call)
        return pb.TruncateTubeResponse(
            tasks=result_of(outcome, CountResult).count, revision=outcome.index
        )

    async def release_all(self, call: UnaryCall[pb.ReleaseAllRequest]) -> pb.ReleaseAllResponse:
        """Release all taken tasks of a tube."""
        check_tube_name(call.request.name, call.request.request_id, call.request.client_id)
        outcome = await self._executor.execute(RELEASE_ALL, call)
        return pb.ReleaseAllResponse(
            tasks=result_of(outcome, CountResult).count, revision=outcome.index
        )

    async def list_tubes(self, call: UnaryCall[pb.ListTubesRequest]) -> pb.ListTubesResponse:
        """Return a page of the tubes, in order of name."""
        request = call.request
        check_page_request(request, "names", request.names)
        queue = await self._reader.queue(request.consistency)
        page, next_token = page_of(
            await _selected(queue, request.names, call.caller, call.steps),
            lambda name: name,
            request.page_size or PAGE_SIZE_MAX,
            request.page_token,
            list_fingerprint("tubes", *request.names),
        )
        queue, offset_ms = self._reader.applied, self._reader.wall_offset_ms
        views = [view for name in page if (view := queue.tube(name)) is not None]
        return pb.ListTubesResponse(
            tubes=await call.steps.in_slices(
                views, lambda view: tube_message(view, offset_ms), MESSAGE_STEPS
            ),
            next_page_token=next_token,
        )

    async def get_statistics(self, call: UnaryCall[pb.GetStatisticsRequest]) -> bytes:
        """Return the statistics of a page of tubes, and the sum over all selected tubes.

        Entries may be applied between the slices of a long answer, which is encoded in slices.

        Raises:
            CallRefused: INVALID_FIELD, TOO_MANY_STEPS.
            NotProposed: a selected tube is temporary, and only the leader holds its tasks.
        """
        request = call.request
        check_page_request(request, "tubes", request.tubes)
        queue = await self._reader.queue(request.consistency)
        revision = queue.applied_index
        names = await _selected(queue, request.tubes, call.caller, call.steps)
        self._reader.check_holds(names)
        page, next_token = page_of(
            names,
            lambda name: name,
            request.page_size or PAGE_SIZE_MAX,
            request.page_token,
            list_fingerprint("statistics", *request.tubes),
        )
        queues, waiting = self._reader.queues, self._waiters.waiting_count

        def shown_of(name: str) -> bytes:
            """Return the encoded statistics of a tube; empty if the tube was dropped."""
            encoded = b""
            for counts in queues.statistics((name,)):
                one = statistics_message(
                    counts,
                    waiting(name),
                    self._reader.wall_offset_ms,
                    transitions=request.transitions,
                    brief=request.brief,
                )
                if not request.brief:
                    self._unlogged_calls.add_to(one, (one.tube,))
                encoded += wire.length_delimited(_STATISTICS, one.SerializeToString())
            return encoded

        found = await call.steps.in_slices(page, shown_of, _STATISTICS_STEPS)
        is_whole = not request.tubes and call.caller.may(Verb.READ, ALL_TUBES)
        answer = pb.GetStatisticsResponse(
            total=await self._total(None if is_whole else names, transitions=request.transitions),
            now_ms=self._reader.wall_now_ms(),
            revision=revision,
            next_page_token=next_token,
        )
        return answer.SerializeToString() + b"".join(found)

    async def _total(self, names: Sequence[str] | None, *, transitions: bool) -> pb.TubeStatistics:
        """Return the sum over some tubes; None means all tubes, from the running totals."""
        queues = self._reader.queues
        first = None if names is None else names[:TOTAL_SLICE]
        counts = queues.total_statistics(first)
        for start in range(TOTAL_SLICE, len(names or ()), TOTAL_SLICE):
            await asyncio.sleep(0)
            more = (names or ())[start : start + TOTAL_SLICE]
            counts = counts.plus(queues.total_statistics(more))
        known = self._reader.applied.tube_number
        waited_on = self._waiters.tubes_with_consumers() if names is None else names
        noted = self._unlogged_calls.tubes() if names is None else names
        waiting = sum(
            self._waiters.waiting_count(name) for name in waited_on if known(name) is not None
        )
        offset_ms = self._reader.wall_offset_ms
        total = total_message(counts, waiting, offset_ms, transitions=transitions)
        self._unlogged_calls.add_to(total, [name for name in noted if known(name) is not None])
        return total
