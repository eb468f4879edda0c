"""Create, start, cancel, read and list groups of tasks."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from taskraft._arguments import choice, flag, text
from taskraft._blocking_facade import blocking
from taskraft._contract_values import converted, value_of
from taskraft._error_translation import from_item
from taskraft._instants import instant_of
from taskraft._leader_caller import new_request_id
from taskraft._planned_task import PlannedTask, check_planned_task
from taskraft.v1 import group_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from taskraft import errors
    from taskraft._blocking_portal import BlockingPortal
    from taskraft._connection import Connection
    from taskraft._durations import Duration


GroupState: TypeAlias = Literal["HELD", "STARTED", "ENDED", "CANCELLED"]
_STATES: Final = {number: name for name, number in pb.Group.State.items() if number}
_STATE_NUMBERS: Final = {name.lower(): number for number, name in _STATES.items()}


def _planned(task: pb.GroupTask) -> PlannedTask:
    return PlannedTask(task.tube, task.spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of tasks as the server describes it."""

    name: str
    """Name of the group."""
    state: str = field(metadata=converted(lambda number: _STATES.get(number, "")))
    """HELD, STARTED, ENDED or CANCELLED; a cancelled group has ended once `open` is 0."""
    open: int
    """Number of tasks that have neither ended nor been buried."""
    processed: int
    """Number of acknowledged tasks."""
    failed: int
    """Number of tasks that failed, expired or are buried."""
    cancelled: int
    """Number of deleted and cancelled tasks."""
    end_task: PlannedTask | None = field(default=None, metadata=converted(_planned))
    """Task to put when all tasks have ended."""
    abort_task: PlannedTask | None = field(default=None, metadata=converted(_planned))
    """Task to put instead if the group was cancelled, or if a task failed and
    `only_if_processed` is set."""
    only_if_processed: bool
    """True: the end task is put only if every task was acknowledged."""
    created_ms: int
    """Time of the creation, in ms since the Unix epoch."""
    ended_ms: int
    """Time at which the last task ended; 0: the group has not ended."""
    last_task_id: int
    """Id of the end task or the abort task; 0: none was put."""
    last_error: errors.TaskraftError | None = field(default=None, metadata=converted(from_item))
    """Reason for which the end task or the abort task could not be put; None: none was refused."""
    owner: str = ""
    """Principal that has created the group; empty: created without access control."""
    message: pb.Group = field(repr=False, compare=False)
    """The group as the server returned it, as a message."""

    @classmethod
    def of(cls, message: pb.Group) -> Group:
        """Return the group of a message."""
        return value_of(cls, message)

    @property
    def created(self) -> datetime | None:
        """Time of the creation."""
        return instant_of(self.created_ms)

    @property
    def ended(self) -> datetime | None:
        """Time at which the last task ended; None: the group has not ended."""
        return instant_of(self.ended_ms)


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
    ) -> Group:
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
        return Group.of(response.group)

    async def start(self, name: str, *, timeout: Duration | None = None) -> Group:
        """Start a group: its HELD tasks can become READY; an empty group ends at once.

        Raises:
            GroupNotFound: no group has this name.
        """
        request = pb.StartGroupRequest(request_id=new_request_id(), name=text("name", name))
        response = await self._connection.call(
            lambda node: node.groups.StartGroup, request, timeout=timeout
        )
        return Group.of(response.group)

    async def cancel(
        self, name: str, *, revoke: bool = False, timeout: Duration | None = None
    ) -> Group:
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
        return Group.of(response.group)

    async def set_end_task(
        self,
        name: str,
        *,
        end_task: PlannedTask | None = None,
        abort_task: PlannedTask | None = None,
        only_if_processed: bool = False,
        timeout: Duration | None = None,
    ) -> Group:
        """Replace the end task, the abort task and `only_if_processed` of a group; return it.

        The arguments are those of `create`; a task that is None is removed.

        Raises:
            GroupNotFound: no group has this name.
            WrongState: the group has ended or was cancelled.
        """
        request = pb.SetEndTaskRequest(
            request_id=new_request_id(),
            name=text("name", name),
            end_task=_group_task("end_task", end_task),
            abort_task=_group_task("abort_task", abort_task),
            only_if_processed=flag("only_if_processed", only_if_processed),
        )
        response = await self._connection.call(
            lambda node: node.groups.SetEndTask, request, timeout=timeout
        )
        return Group.of(response.group)

    async def get(self, name: str, *, timeout: Duration | None = None) -> Group:
        """Return a group with its counts; an ended group is kept for one day.

        Raises:
            GroupNotFound: no group has this name, or it ended more than one day ago.
        """
        response = await self._connection.call(
            lambda node: node.groups.GetGroup,
            pb.GetGroupRequest(name=text("name", name)),
            timeout=timeout,
        )
        return Group.of(response.group)

    async def list(
        self, *names: str, states: Iterable[GroupState] = (), timeout: Duration | None = None
    ) -> list[Group]:
        """Return groups in the order of their names.

        Args:
            *names: names, or patterns in which "*" matches any characters; without a name, all
                groups.
            states: only groups in these states; empty: in all states.
            timeout: time limit of each page.
        """
        request = pb.ListGroupsRequest(
            names=[text("names", name) for name in names],
            states=[
                pb.Group.State.ValueType(choice("states", state, _STATE_NUMBERS))
                for state in states
            ],
        )
        pages = self._connection.pages(
            lambda node: node.groups.ListGroups, request, timeout=timeout
        )
        return [Group.of(found) async for page in pages for found in page.groups]


class Groups:
    """The groups of a cluster, for threads."""

    def __init__(self, groups: AsyncGroups, portal: BlockingPortal) -> None:
        self._inner = groups
        self._portal = portal

    create = blocking(AsyncGroups.create)
    start = blocking(AsyncGroups.start)
    cancel = blocking(AsyncGroups.cancel)
    set_end_task = blocking(AsyncGroups.set_end_task)
    get = blocking(AsyncGroups.get)
    list = blocking(AsyncGroups.list)


def _group_task(name: str, task: PlannedTask | None) -> pb.GroupTask | None:
    if task is None:
        return None
    return pb.GroupTask(tube=check_planned_task(name, task).tube, spec=task.alone())
