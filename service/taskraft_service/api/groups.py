"""GroupService: create, start, cancel, read and list groups of tasks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import group_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import ALL_TUBES, Verb
from taskraft_service.api.rpc.methods import ExecutionSite, ServiceMethods, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.paging import list_fingerprint, page_of
from taskraft_service.api.rpc.request_steps import MESSAGE_STEPS
from taskraft_service.api.rpc.status import CallRefused, error_message
from taskraft_service.api.rpc.violations import Violations, check_named_request
from taskraft_service.api.state.checks import DiskSpaceGuard
from taskraft_service.api.state.command_executor import CommandExecutor, result_of
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.put_checks import check_stored_spec
from taskraft_service.command_codecs.groups import (
    CANCEL_GROUP,
    CREATE_GROUP,
    SET_END_TASK,
    START_GROUP,
)
from taskraft_service.languages.patterns import PatternSet
from taskraft_service.limits import PAGE_SIZE_MAX
from taskraft_service.queue.entities.group import GroupTask, GroupView
from taskraft_service.queue.entities.instants import in_wall_time
from taskraft_service.queue.operations.groups import GroupResult

_STATES: Final = frozenset(pb.Group.State.values()) - {pb.Group.STATE_UNSPECIFIED}
SERVICE: Final = pb.DESCRIPTOR.services_by_name["GroupService"]


class GroupService:
    """The methods of GroupService."""

    def __init__(
        self, executor: CommandExecutor, reader: QueueReader, disk: DiskSpaceGuard
    ) -> None:
        self._executor = executor
        self._reader = reader
        self._disk = disk

    def methods(self) -> ServiceMethods:
        """Return the methods of GroupService."""
        return ServiceMethods(
            SERVICE,
            (
                UnaryMethod(
                    "CreateGroup", pb.CreateGroupRequest, ExecutionSite.LEADER, self.create
                ),
                UnaryMethod("StartGroup", pb.StartGroupRequest, ExecutionSite.LEADER, self.start),
                UnaryMethod(
                    "CancelGroup", pb.CancelGroupRequest, ExecutionSite.LEADER, self.cancel
                ),
                UnaryMethod(
                    "SetEndTask",
                    pb.SetEndTaskRequest,
                    ExecutionSite.LEADER,
                    self.set_end_task,
                ),
                UnaryMethod(
                    "ListGroups",
                    pb.ListGroupsRequest,
                    ExecutionSite.BY_CONSISTENCY,
                    self.list_groups,
                    lambda request: self._reader.is_local(request.consistency),
                ),
                UnaryMethod(
                    "GetGroup",
                    pb.GetGroupRequest,
                    ExecutionSite.BY_CONSISTENCY,
                    self.get,
                    lambda request: self._reader.is_local(request.consistency),
                ),
            ),
            bidirectional={},
            server_streaming={},
        )

    def _defines_zero(self, tube: str) -> bool:
        return self._reader.defines_zero((tube,))

    async def create(self, call: UnaryCall[pb.CreateGroupRequest]) -> pb.CreateGroupResponse:
        """Create a group."""
        _check_create(call.request, self._defines_zero)
        self._disk.check()
        outcome = await self._executor.execute(CREATE_GROUP, call)
        group = group_message(result_of(outcome, GroupResult).group, outcome.wall_offset_ms)
        return pb.CreateGroupResponse(group=group, revision=outcome.index)

    async def start(self, call: UnaryCall[pb.StartGroupRequest]) -> pb.StartGroupResponse:
        """Start a group; the last tasks of a large group may be started after the answer."""
        check_named_request(call.request.name, call.request.request_id, call.request.client_id)
        outcome = await self._executor.execute(START_GROUP, call)
        group = visible_group(
            result_of(outcome, GroupResult).group, outcome.wall_offset_ms, call.caller
        )
        return pb.StartGroupResponse(group=group, revision=outcome.index)

    async def cancel(self, call: UnaryCall[pb.CancelGroupRequest]) -> pb.CancelGroupResponse:
        """Cancel a group; the last tasks of a large group may be removed after the answer."""
        check_named_request(call.request.name, call.request.request_id, call.request.client_id)
        outcome = await self._executor.execute(CANCEL_GROUP, call)
        group = visible_group(
            result_of(outcome, GroupResult).group, outcome.wall_offset_ms, call.caller
        )
        return pb.CancelGroupResponse(group=group, revision=outcome.index)

    async def set_end_task(self, call: UnaryCall[pb.SetEndTaskRequest]) -> pb.SetEndTaskResponse:
        """Replace the tasks that a group puts at its end."""
        _check_set_end_task(call.request, self._defines_zero)
        self._disk.check()
        outcome = await self._executor.execute(SET_END_TASK, call)
        group = group_message(result_of(outcome, GroupResult).group, outcome.wall_offset_ms)
        return pb.SetEndTaskResponse(group=group, revision=outcome.index)

    async def list_groups(self, call: UnaryCall[pb.ListGroupsRequest]) -> pb.ListGroupsResponse:
        """Return a page of the groups that the caller may read, in order of name."""
        request = call.request
        _check_list(request)
        queue = await self._reader.queue(request.consistency)
        names = await call.steps.matching(
            queue.group_names(request.states or _STATES),
            PatternSet(request.names or (ALL_TUBES,)),
            partial(call.caller.may, Verb.READ),
        )
        queue = self._reader.applied
        page, next_token = page_of(
            names,
            lambda name: name,
            request.page_size or PAGE_SIZE_MAX,
            request.page_token,
            list_fingerprint("groups", *map(str, sorted(set(request.states))), *request.names),
            bytes_of=lambda name: _content_bytes(queue.group(name)),
        )
        views = [view for name in page if (view := queue.group(name)) is not None]
        offset_ms = queue.wall_offset_ms
        return pb.ListGroupsResponse(
            groups=await call.steps.in_slices(
                views, lambda view: visible_group(view, offset_ms, call.caller), MESSAGE_STEPS
            ),
            next_page_token=next_token,
        )

    async def get(self, call: UnaryCall[pb.GetGroupRequest]) -> pb.GetGroupResponse:
        """Return a group."""
        request = call.request
        _check_get(request)
        queue = await self._reader.queue(request.consistency)
        view = queue.group(request.name)
        if view is None:
            text = f'there is no group "{request.name}"'
            raise CallRefused(error_pb2.Error.GROUP_NOT_FOUND, text, {"group": request.name})
        return pb.GetGroupResponse(group=visible_group(view, queue.wall_offset_ms, call.caller))


def _content_bytes(view: GroupView | None) -> int:
    """Return the size of the tasks that a group puts later."""
    if view is None:
        return 0
    return sum([len(task.spec) for task in (view.end_task, view.abort_task) if task is not None])


def visible_group(view: GroupView, wall_offset_ms: int, caller: Caller) -> pb.Group:
    """Return a group as a message, without tasks for tubes that the caller may not read."""
    message = group_message(view, wall_offset_ms)
    for following in (message.end_task, message.abort_task):
        if following.tube and not caller.may(Verb.READ, following.tube):
            following.ClearField("spec")
    return message


def group_message(view: GroupView, wall_offset_ms: int) -> pb.Group:
    """Return a group as a message."""
    message = pb.Group(
        name=view.name,
        state=pb.Group.State.ValueType(view.state),
        open=view.open,
        processed=view.processed,
        failed=view.failed,
        cancelled=view.cancelled,
        only_if_processed=view.only_if_processed,
        created_ms=in_wall_time(view.created_ms, wall_offset_ms),
        ended_ms=in_wall_time(view.ended_ms, wall_offset_ms),
        last_task_id=view.last_task_id,
        owner=view.owner,
    )
    if view.end_task is not None:
        _show(message.end_task, view.end_task)
    if view.abort_task is not None:
        _show(message.abort_task, view.abort_task)
    if view.refusal is not None:
        message.last_error.CopyFrom(error_message(view.refusal))
    return message


def _show(message: pb.GroupTask, task: GroupTask) -> None:
    message.tube = task.tube
    message.spec.MergeFromString(task.spec)


def _check_create(request: pb.CreateGroupRequest, defines_zero: Callable[[str], bool]) -> None:
    """Check the definition of a new group."""
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_name("group.name", request.group.name)
    _check_group_tasks(violations, "group.", request.group, defines_zero)
    violations.raise_if_any()


def _check_set_end_task(request: pb.SetEndTaskRequest, defines_zero: Callable[[str], bool]) -> None:
    """Check the new end task and abort task of a group."""
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_name("name", request.name)
    _check_group_tasks(violations, "", request, defines_zero)
    violations.raise_if_any()


def _check_group_tasks(
    violations: Violations,
    prefix: str,
    message: pb.Group | pb.SetEndTaskRequest,
    defines_zero: Callable[[str], bool],
) -> None:
    """Check the end task and the abort task; ``prefix`` stands before the names of the fields."""
    for field in ("end_task", "abort_task"):
        if message.HasField(field):
            task = getattr(message, field)
            violations.check_tube(f"{prefix}{field}.tube", task.tube)
            stored = Violations()
            check_stored_spec(stored, f"{prefix}{field}.spec", task.spec)
            stored.allow_zeros(partial(defines_zero, task.tube))
            violations.include("", stored)
            if task.spec.group and task.spec.group == message.name:
                violations.add(
                    f"{prefix}{field}.spec.group",
                    "not allowed; the group has ended when this task is put",
                )
    if message.only_if_processed and not message.HasField("end_task"):
        violations.add(f"{prefix}only_if_processed", "requires end_task")


def _check_list(request: pb.ListGroupsRequest) -> None:
    """Check a request for a page of groups; names of groups may have any characters."""
    violations = Violations()
    violations.check_count("names", request.names, limits.NAMES_MAX)
    for position, name in enumerate(request.names):
        violations.check_name(f"names[{position}]", name)
    violations.check_count("states", request.states, len(_STATES))
    for position, state in enumerate(request.states):
        violations.check_choice(f"states[{position}]", state, _STATES)
    violations.check_page(request.page_size, request.page_token)
    violations.check_consistency(request.consistency)
    violations.raise_if_any()


def _check_get(request: pb.GetGroupRequest) -> None:
    """Check a read of a group."""
    violations = Violations()
    violations.check_name("name", request.name)
    violations.check_consistency(request.consistency)
    violations.raise_if_any()
