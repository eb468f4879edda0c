"""TubeService: create, change, list and drop tubes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import tube_service_pb2 as pb
from taskraft_service.api.rpc.methods import (
    AnyUnaryMethod,
    ExecutionSite,
    ServiceMethods,
    UnaryCall,
    UnaryMethod,
)
from taskraft_service.api.rpc.paging import list_fingerprint, page_of
from taskraft_service.api.rpc.request_steps import MESSAGE_STEPS
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
    tube_message,
)
from taskraft_service.api.tubes.checks import (
    check_create_tube,
    check_tube_name,
    check_update_tube,
)
from taskraft_service.api.tubes.readable_tubes import readable_tubes
from taskraft_service.command_codecs.tubes import (
    CREATE_TUBE,
    DROP_TUBE,
    RELEASE_ALL,
    TRUNCATE_TUBE,
    UPDATE_TUBE,
)
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.leader.dropped_tubes import DroppedTubes
from taskraft_service.leader.waiters import Waiters
from taskraft_service.limits import PAGE_SIZE_MAX
from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.operations.tubes import TubeResult

SERVICE: Final = pb.DESCRIPTOR.services_by_name["TubeService"]


class TubeService:
    """The methods of TubeService."""

    def __init__(
        self,
        executor: CommandExecutor,
        reader: QueueReader,
        waiters: Waiters,
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
        self._dropped = DroppedTubes(waiters)
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
            self._dropped.add(name)
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
            await readable_tubes(queue, request.names, call.caller, call.steps),
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
