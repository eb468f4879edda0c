"""Create, start, cancel and read groups of tasks."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft._arguments import flag, text
from taskraft._blocking_facade import blocking
from taskraft._leader_caller import new_request_id
from taskraft._planned_task import PlannedTask, check_planned_task
from taskraft.v1 import group_service_pb2 as pb

if TYPE_CHECKING:
    from taskraft._blocking_portal import BlockingPortal
    from taskraft._connection import Connection
    from taskraft._durations import Duration


class AsyncGroups:
    """The groups of a cluster.

    A task joins a group with the put option `group`. The tasks are HELD until the group is started.
    When the last task has ended, the server puts the group's end task.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self,
        name: str,
        *,
        end_task: PlannedTask | None = None,
        abort_task: PlannedTask | None = None,
        only_if_processed: bool = False,
        timeout: Duration | None = None,
    ) -> pb.Group:
        """Create a group and return it.

        Args:
            name: 1 to 128 bytes.
            end_task: put when all tasks have ended; made by `Tube.task`.
            abort_task: put instead of `end_task` if the group was cancelled, or if a task failed
                and `only_if_processed` is set.
            only_if_processed: put the end task only if every task was acknowledged.
            timeout: time limit of the call, retries included.

        Raises:
            GroupExists: a group with this name exists.
        """
        group = pb.Group(
            name=text("name", name),
            end_task=_group_task("end_task", end_task),
            abort_task=_group_task("abort_task", abort_task),
            only_if_processed=flag("only_if_processed", only_if_processed),
        )
        request = pb.CreateGroupRequest(request_id=new_request_id(), group=group)
        response = await self._connection.call(
            lambda node: node.groups.CreateGroup, request, timeout=timeout
        )
        return response.group

    async def start(self, name: str, *, timeout: Duration | None = None) -> pb.Group:
        """Start a group: its HELD tasks can become READY; an empty group ends at once.

        Raises:
            GroupNotFound: no group has this name.
        """
        request = pb.StartGroupRequest(request_id=new_request_id(), name=text("name", name))
        response = await self._connection.call(
            lambda node: node.groups.StartGroup, request, timeout=timeout
        )
        return response.group

    async def cancel(
        self, name: str, *, revoke: bool = False, timeout: Duration | None = None
    ) -> pb.Group:
        """Remove the tasks of a group that have no holder, and ask the other holders to stop.

        Args:
            name: name of the group.
            revoke: also remove TAKEN tasks; their leases become stale.
            timeout: time limit of the call, retries included.

        Raises:
            GroupNotFound: no group has this name.
        """
        request = pb.CancelGroupRequest(
            request_id=new_request_id(), name=text("name", name), revoke=flag("revoke", revoke)
        )
        response = await self._connection.call(
            lambda node: node.groups.CancelGroup, request, timeout=timeout
        )
        return response.group

    async def get(self, name: str, *, timeout: Duration | None = None) -> pb.Group:
        """Return a group with its counts; an ended group is kept for one day.

        Raises:
            GroupNotFound: no group has this name, or it ended more than one day ago.
        """
        response = await self._connection.call(
            lambda node: node.groups.GetGroup,
            pb.GetGroupRequest(name=text("name", name)),
            timeout=timeout,
        )
        return response.group


class Groups:
    """The groups of a cluster, for threads."""

    def __init__(self, groups: AsyncGroups, portal: BlockingPortal) -> None:
        self._inner = groups
        self._portal = portal

    create = blocking(AsyncGroups.create)
    start = blocking(AsyncGroups.start)
    cancel = blocking(AsyncGroups.cancel)
    get = blocking(AsyncGroups.get)


def _group_task(name: str, task: PlannedTask | None) -> pb.GroupTask | None:
    if task is None:
        return None
    return pb.GroupTask(tube=check_planned_task(name, task).tube, spec=task.alone())
