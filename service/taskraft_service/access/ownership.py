"""Decide whether a request may change the objects of other principals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message

from taskraft.v1 import feed_service_pb2 as feed
from taskraft.v1 import group_service_pb2 as group
from taskraft.v1 import schedule_service_pb2 as schedule
from taskraft.v1 import task_service_pb2 as task
from taskraft.v1 import tube_service_pb2 as tube
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import Verb
from taskraft_service.queue.entities.ownership import EVERYBODY, Ownership

Names: TypeAlias = Callable[[Any], Iterable[str]]
"""Returns the tubes, groups or schedules whose admins may change the objects of others that a
request reaches; empty: the request reaches no such object."""


def _of_put(request: task.PutTasksRequest) -> Iterable[str]:
    """Return the tube of a put whose unique keys can reach existing tasks."""
    return (request.tube,) if any(spec.unique_key for spec in request.tasks) else ()


def _of_batch(request: task.ExecuteBatchRequest) -> Iterable[str]:
    return {name for one in request.operations for name in _of_put(one.put)}


_NAMES: Final[Mapping[type[Message], Names]] = {
    task.PutTasksRequest: _of_put,
    task.ExecuteBatchRequest: _of_batch,
    group.CancelGroupRequest: lambda request: (request.name,),
    group.SetEndTaskRequest: lambda request: (request.name,),
    schedule.UpdateScheduleRequest: lambda request: (request.schedule.name,),
    schedule.DeleteScheduleRequest: lambda request: (request.name,),
}


_CREATIONS: Final = (
    tube.CreateTubeRequest,
    group.CreateGroupRequest,
    schedule.CreateScheduleRequest,
    feed.CommitCursorRequest,
)


def _makes_owned(request: Message) -> bool:
    """Return whether a request makes an object with an owner, and changes none.

    The leases of a take without a session have an owner; the other leases belong to their session.
    """
    if isinstance(request, task.TakeTasksRequest):
        return not request.session_id
    return isinstance(request, _CREATIONS)


def reached_names(request: Message) -> Iterable[str]:
    """Return the names whose admins may change the objects of others that a request reaches."""
    names = _NAMES.get(type(request))
    return () if names is None else names(request)


def ownership_of(caller: Caller, request: Message) -> Ownership:
    """Return the ownership of a request.

    ``EVERYBODY``: the request neither makes nor reaches an object with an owner. An admin of all
    reached names may also change the objects of others.
    """
    if not caller.is_restricted:
        return EVERYBODY
    if _makes_owned(request):
        return Ownership(caller.name, changes_all=False)
    reached = reached_names(request)
    if not reached:
        return EVERYBODY
    return Ownership(caller.name, all(caller.may(Verb.MANAGE, name) for name in reached))
