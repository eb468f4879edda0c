"""Find the ownership of a request: what its principal may change of what others have made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message

from taskraft.v1 import group_service_pb2 as group
from taskraft.v1 import schedule_service_pb2 as schedule
from taskraft.v1 import task_service_pb2 as task
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import Verb
from taskraft_service.queue.entities.ownership import EVERYBODY, Ownership

Names: TypeAlias = Callable[[Any], Iterable[str]]
"""Returns the names whose admins may change what the request reaches; none: it reaches nothing."""


def _of_put(request: task.PutTasksRequest) -> Iterable[str]:
    """Return the tube of a put whose unique keys can reach existing tasks."""
    return (request.tube,) if any(spec.unique_key for spec in request.tasks) else ()


def _of_batch(request: task.ExecuteBatchRequest) -> Iterable[str]:
    return {tube for one in request.operations for tube in _of_put(one.put)}


_NAMES: Final[Mapping[type[Message], Names]] = {
    task.PutTasksRequest: _of_put,
    task.ExecuteBatchRequest: _of_batch,
    group.CreateGroupRequest: lambda request: (request.group.name,),
    group.CancelGroupRequest: lambda request: (request.name,),
    group.SetEndTaskRequest: lambda request: (request.name,),
    schedule.CreateScheduleRequest: lambda request: (request.schedule.name,),
    schedule.UpdateScheduleRequest: lambda request: (request.schedule.name,),
    schedule.DeleteScheduleRequest: lambda request: (request.name,),
}


def ownership_of(caller: Caller, request: Message) -> Ownership:
    """Return the ownership of a request; ``EVERYBODY`` for a request that reaches no such object.

    An admin of all names may also change what others own.
    """
    if not caller.is_restricted:
        return EVERYBODY
    names = _NAMES.get(type(request))
    reached = () if names is None else names(request)
    if not reached:
        return EVERYBODY
    return Ownership(caller.name, all(caller.may(Verb.MANAGE, name) for name in reached))
