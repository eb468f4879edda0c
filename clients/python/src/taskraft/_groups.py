"""Create, start, cancel and look at groups of tasks."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

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

    Tasks join a group by the option `group` of a put and are held until it is started. When the
    last of them has ended, one more task is put.
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
            end_task: Put when all tasks have ended; made by `Tube.task`.
            abort_task: Put instead when the group was cancelled or, with `only_if_processed`, when
                a task has failed.
            only_if_processed: Put the end task only if every task was acknowledged.
            timeout: How long to try.

        Raises:
            GroupExists: There is one of this name.
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
        """Let the tasks of a group go; without any it ends at once.

        Raises:
            GroupNotFound: There is none of this name.
        """
        request = pb.StartGroupRequest(request_id=new_request_id(), name=text("name", name))
        response = await self._connection.call(
            lambda node: node.groups.StartGroup, request, timeout=timeout
        )
        return response.group

    async def cancel(
        self, name: str, *, revoke: bool = False, timeout: Duration | None = None
    ) -> pb.Group:
        """Remove the waiting tasks of a group, and ask the holders of the others to stop.

        Args:
            name: Of the group.
            revoke: Remove taken tasks too; their leases become stale.
            timeout: How long to try.

        Raises:
            GroupNotFound: There is none of this name.
        """
        request = pb.CancelGroupRequest(
            request_id=new_request_id(), name=text("name", name), revoke=flag("revoke", revoke)
        )
        response = await self._connection.call(
            lambda node: node.groups.CancelGroup, request, timeout=timeout
        )
        return response.group

    async def get(self, name: str, *, timeout: Duration | None = None) -> pb.Group:
        """Return a group with its counts; ended ones are shown for a day.

        Raises:
            GroupNotFound: There is none of this name, or not any more.
        """
        response = await self._connection.call(
            lambda node: node.groups.GetGroup,
            pb.GetGroupRequest(name=text("name", name)),
            timeout=timeout,
        )
        return response.group


class Groups:
    """The groups of a cluster, from threads."""

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
