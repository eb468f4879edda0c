"""List the permissions that each request needs, in one table keyed by request type.

A request type without a rule needs all permissions; a test checks that every method of the contract
has a rule. Leases and sessions in a request are checked by ``taskraft_service.access.leases``,
because their owners depend on the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from google.protobuf.message import Message

from taskraft.v1 import bulk_sweep_pb2 as bulk_sweep
from taskraft.v1 import cluster_service_pb2 as cluster
from taskraft.v1 import feed_service_pb2 as feed
from taskraft.v1 import group_service_pb2 as group
from taskraft.v1 import schedule_service_pb2 as schedule
from taskraft.v1 import session_service_pb2 as session
from taskraft.v1 import task_service_pb2 as task
from taskraft.v1 import tube_service_pb2 as tube
from taskraft_service.access.permissions import ALL_TUBES, ANY_TUBE, Verb
from taskraft_service.languages.patterns import is_pattern
from taskraft_service.stubs.externalscaler import external_scaler_pb2 as scaler

M = TypeVar("M", bound=Message)
RequiredPermission: TypeAlias = tuple[Verb, str]
"""A permission, with the tube, group or schedule for which it is needed."""
Rule: TypeAlias = Callable[[Message], Iterable[RequiredPermission]]

PUT, TAKE, READ, MANAGE = Verb.PUT, Verb.TAKE, Verb.READ, Verb.MANAGE


def _put(request: task.PutTasksRequest) -> Iterator[RequiredPermission]:
    yield PUT, request.tube
    if request.outcome_wait_ms or request.return_tasks:
        yield READ, request.tube
    for name in {spec.group for spec in request.tasks}:
        if name:
            yield PUT, name
    # A dependency on an existing task tells whether the task exists.
    existing = [
        one.task.tube for spec in request.tasks for one in spec.depends_on if one.HasField("task")
    ]
    for name in set(existing):
        yield READ, name or request.tube


def _take(sources: Iterable[task.TakeSource]) -> Iterator[RequiredPermission]:
    """Require permission to take from each named tube.

    A pattern needs no permission, because it matches only tubes from which the caller may take.
    """
    yield TAKE, ANY_TUBE
    for source in sources:
        if not is_pattern(source.tube):
            yield TAKE, source.tube


def _settle(settlements: Iterable[task.Settlement]) -> Iterator[RequiredPermission]:
    yield TAKE, ANY_TUBE
    for settlement in settlements:
        if settlement.release.move_to:
            yield PUT, settlement.release.move_to


def _move(request: task.MoveTasksRequest) -> Iterator[RequiredPermission]:
    """Require permission to put into all tubes if the tasks return to their tubes of origin."""
    yield MANAGE, request.tube
    yield PUT, request.move_to or ALL_TUBES


def _start_bulk_sweep(request: bulk_sweep.StartBulkSweepRequest) -> Iterator[RequiredPermission]:
    yield MANAGE, request.tube
    if request.move_to:
        yield PUT, request.move_to


def _subscribe(message: task.SubscribeRequest) -> Iterator[RequiredPermission]:
    yield from _take(message.open.sources)
    yield from _settle(message.settlements)


def _batch(request: task.ExecuteBatchRequest) -> Iterator[RequiredPermission]:
    for operation in request.operations:
        kind = operation.WhichOneof("operation")
        if kind is not None:
            yield from required_permissions(getattr(operation, kind))


def _create_tube(request: tube.CreateTubeRequest) -> Iterator[RequiredPermission]:
    yield MANAGE, request.tube.name
    yield from _dead_letters(request.tube.options)


def _update_tube(request: tube.UpdateTubeRequest) -> Iterator[RequiredPermission]:
    yield MANAGE, request.name
    yield from _dead_letters(request.options)


def _dead_letters(options: tube.TubeOptions) -> Iterator[RequiredPermission]:
    if options.dead_letter_tube:
        yield PUT, options.dead_letter_tube


def _create_group(request: group.CreateGroupRequest) -> Iterator[RequiredPermission]:
    yield PUT, request.group.name
    yield from _group_tasks(request.group)


def _set_end_task(request: group.SetEndTaskRequest) -> Iterator[RequiredPermission]:
    yield PUT, request.name
    yield from _group_tasks(request)


def _group_tasks(message: group.Group | group.SetEndTaskRequest) -> Iterator[RequiredPermission]:
    for last in (message.end_task, message.abort_task):
        if last.tube:
            yield PUT, last.tube
        if last.spec.group:
            yield PUT, last.spec.group


def _schedule(wanted: schedule.Schedule) -> Iterator[RequiredPermission]:
    yield PUT, wanted.name
    yield PUT, wanted.tube
    if wanted.spec.group:
        yield PUT, wanted.spec.group


def _update_schedule(request: schedule.UpdateScheduleRequest) -> Iterator[RequiredPermission]:
    """Require permission for the schedule's name, or for the whole schedule without a mask.

    With a mask, the service authorizes the merged schedule again.
    """
    if request.update_mask.paths:
        yield PUT, request.schedule.name
    else:
        yield from _schedule(request.schedule)


def _history(request: tube.GetHistoryRequest) -> Iterator[RequiredPermission]:
    """Require permission to read the named tubes, and to read all tubes for the total."""
    if request.total:
        yield READ, ALL_TUBES
    for name in request.tubes or (ANY_TUBE,):
        yield READ, name


def _failures(request: tube.ListFailuresRequest) -> Iterator[RequiredPermission]:
    """Require permission to read the named tubes; without names, the answer is filtered."""
    for name in request.tubes or (ANY_TUBE,):
        yield READ, name


def _consumers(request: tube.ListConsumersRequest) -> Iterator[RequiredPermission]:
    """Require permission to read the tube; the service checks who may list a session."""
    yield (TAKE, ANY_TUBE) if request.session_id else (READ, request.tube)


def _scaled(reference: scaler.ScaledObjectRef) -> Iterator[RequiredPermission]:
    """Require permission to read the tube whose work KEDA asks for."""
    yield READ, reference.scalerMetadata.get("tube", "") or ALL_TUBES


def _read_changes(request: feed.ReadChangesRequest) -> Iterator[RequiredPermission]:
    """Require permission to read the named tubes, or all tubes if the request names none."""
    for name in request.tubes or (ALL_TUBES,):
        yield READ, name


def _for(
    kind: type[M], rule: Callable[[M], Iterable[RequiredPermission]]
) -> tuple[type[Message], Rule]:
    """Return a row of the table, with the request's type checked."""

    def needs(request: Message) -> Iterable[RequiredPermission]:
        assert isinstance(request, kind)
        return rule(request)

    return kind, needs


def _all(*needs: RequiredPermission) -> Callable[[Message], Iterable[RequiredPermission]]:
    """Return a rule that does not depend on the content of the request."""
    return lambda _request: needs


_AUTHENTICATED: Final = _all()
"""Every authenticated caller is allowed."""
_TAKERS: Final = _all((TAKE, ANY_TUBE))
_READERS: Final = _all((READ, ANY_TUBE))
_CLUSTER: Final = _all((MANAGE, ALL_TUBES))

RULES: Final[Mapping[type[Message], Rule]] = dict(
    (
        _for(task.PutTasksRequest, _put),
        _for(task.TakeTasksRequest, lambda request: _take(request.sources)),
        _for(task.SettleTasksRequest, lambda request: _settle(request.settlements)),
        _for(task.SubscribeRequest, _subscribe),
        _for(task.GetTasksRequest, lambda request: [(READ, request.tube)]),
        _for(task.ListTasksRequest, lambda request: [(READ, request.tube)]),
        # The answer leaves out tasks of other tubes that the caller may not read.
        _for(task.GetTaskGraphRequest, lambda request: [(READ, request.tube)]),
        _for(task.CountTasksRequest, lambda request: [(READ, request.tube)]),
        _for(task.WaitTasksRequest, lambda request: [(READ, request.tube)]),
        _for(task.KickTasksRequest, lambda request: [(MANAGE, request.tube)]),
        _for(task.BuryTasksRequest, lambda request: [(MANAGE, request.tube)]),
        _for(task.DeleteTasksRequest, lambda request: [(MANAGE, request.tube)]),
        _for(task.UpdateTasksRequest, lambda request: [(MANAGE, request.tube)]),
        _for(task.SnatchTasksRequest, lambda request: [(MANAGE, request.tube)]),
        _for(task.RestartTasksRequest, lambda request: [(MANAGE, request.tube)]),
        _for(task.SwitchTasksRequest, lambda request: [(MANAGE, request.tube)]),
        _for(task.MoveTasksRequest, _move),
        _for(task.CancelTasksRequest, lambda request: [(MANAGE, request.tube)]),
        _for(task.ExecuteBatchRequest, _batch),
        _for(bulk_sweep.StartBulkSweepRequest, _start_bulk_sweep),
        # The service checks the permission on the tube of the job.
        _for(bulk_sweep.StopBulkSweepRequest, _READERS),
        _for(bulk_sweep.GetBulkSweepRequest, _READERS),
        _for(bulk_sweep.ListBulkSweepsRequest, _READERS),
        _for(tube.CreateTubeRequest, _create_tube),
        _for(tube.UpdateTubeRequest, _update_tube),
        _for(tube.DropTubeRequest, lambda request: [(MANAGE, request.name)]),
        _for(tube.TruncateTubeRequest, lambda request: [(MANAGE, request.name)]),
        _for(tube.ReleaseAllRequest, lambda request: [(MANAGE, request.name)]),
        # The answers contain only objects that the caller may read.
        _for(tube.ListTubesRequest, _READERS),
        _for(tube.GetStatisticsRequest, _READERS),
        _for(tube.GetHistoryRequest, _history),
        _for(tube.ListFailuresRequest, _failures),
        _for(tube.ListConsumersRequest, _consumers),
        _for(schedule.ListSchedulesRequest, _READERS),
        _for(group.ListGroupsRequest, _READERS),
        # These requests reach only sessions that the caller opened.
        _for(session.OpenSessionRequest, _TAKERS),
        _for(session.KeepSessionsRequest, _TAKERS),
        _for(session.CloseSessionRequest, _TAKERS),
        _for(session.ListSessionsRequest, _TAKERS),
        _for(session.ListLeasesRequest, _TAKERS),
        _for(group.CreateGroupRequest, _create_group),
        _for(group.StartGroupRequest, lambda request: [(PUT, request.name)]),
        _for(group.CancelGroupRequest, lambda request: [(PUT, request.name)]),
        _for(group.SetEndTaskRequest, _set_end_task),
        _for(group.GetGroupRequest, lambda request: [(READ, request.name)]),
        _for(schedule.CreateScheduleRequest, lambda request: _schedule(request.schedule)),
        _for(schedule.UpdateScheduleRequest, _update_schedule),
        _for(schedule.GetScheduleRequest, lambda request: [(READ, request.name)]),
        _for(schedule.DeleteScheduleRequest, lambda request: [(PUT, request.name)]),
        _for(feed.DescribeFeedRequest, _READERS),
        _for(feed.WatchFeedRequest, _READERS),
        _for(feed.ReadChangesRequest, _read_changes),
        _for(feed.ResolveTimestampRequest, _READERS),
        _for(feed.GetTaskEventsRequest, lambda request: [(READ, request.tube)]),
        # The answer contains only tubes that the caller may read.
        _for(feed.OpenTaskSnapshotRequest, _READERS),
        _for(feed.ReadTaskSnapshotRequest, lambda request: [(READ, request.tube)]),
        _for(feed.CommitCursorRequest, lambda request: [(READ, request.consumer)]),
        _for(scaler.ScaledObjectRef, _scaled),
        _for(scaler.GetMetricsRequest, lambda request: _scaled(request.scaledObjectRef)),
        _for(cluster.GetServerInfoRequest, _AUTHENTICATED),
        _for(cluster.GetClusterStateRequest, _AUTHENTICATED),
        _for(cluster.GetCallerRequest, _AUTHENTICATED),
        # The answer contains only acts on names that the caller may manage.
        _for(cluster.ListAuditRequest, _AUTHENTICATED),
        _for(cluster.AddMemberRequest, _CLUSTER),
        _for(cluster.PromoteMemberRequest, _CLUSTER),
        _for(cluster.RemoveMemberRequest, _CLUSTER),
        _for(cluster.TransferLeadershipRequest, _CLUSTER),
        _for(cluster.ConfigureRequest, _CLUSTER),
        _for(cluster.UpgradeClusterRequest, _CLUSTER),
        _for(cluster.SaveSnapshotRequest, _CLUSTER),
    )
)
"""The rule of each request type."""

OF_OPERATORS: Final = frozenset(
    kind for kind, rule in RULES.items() if list(rule(kind())) == [(MANAGE, ALL_TUBES)]
)
"""The request types that change the members or the settings, or read the whole state."""

MANAGING: Final = frozenset(
    kind for kind, rule in RULES.items() if any(verb is MANAGE for verb, _ in rule(kind()))
) | {task.ExecuteBatchRequest}
"""The request types that can need the permission to manage."""

_DEFAULT_RULE: Final = _CLUSTER
"""Rule of a request type that is missing in the table."""


def required_permissions(request: Message) -> Iterable[RequiredPermission]:
    """Return all permissions that a request needs."""
    return RULES.get(type(request), _DEFAULT_RULE)(request)


def managed_names(request: Message) -> Sequence[str]:
    """Return the names for which a request needs the permission to manage."""
    return [name for verb, name in required_permissions(request) if verb is MANAGE]
