"""Handle GetTaskGraph: the tasks that a task waits for and that wait for the task, by distance."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import Verb
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.status import CallRefused, tube_not_found
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.answers import CONTENT_SLICE_BYTES, encode_tasks, without_payload
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.store.indexes import FIRST
from taskraft_service.turns import next_turn

DEPTH_MAX: Final = 5
TASKS_MAX: Final = 500
NEIGHBOURS_MAX: Final = 5_000
"""Maximum number of neighbours that one call reads; a task is read once for each of its edges."""
NEIGHBOUR_BYTES: Final = 40 * 1024
"""Content that counts as one more neighbour, because its size takes as long to read."""
SLICE_NEIGHBOURS: Final = 100
"""Number of neighbours that are read between two turns of the event loop; about 20 us each."""

Place = tuple[str, int]
"""Name of the tube and id of a task."""


class TaskGraphHandler:
    """The handler of GetTaskGraph.

    Args:
        reader: reads the queue.
    """

    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader

    def method(self) -> AnyUnaryMethod:
        """Return the method GetTaskGraph with its handler."""
        return UnaryMethod(
            "GetTaskGraph",
            pb.GetTaskGraphRequest,
            ExecutionSite.BY_CONSISTENCY,
            self.get_task_graph,
            lambda request: self._reader.can_read_here(request.consistency, request.tube),
        )

    async def get_task_graph(self, call: UnaryCall[pb.GetTaskGraphRequest]) -> bytes:
        """Return the graph around a task.

        Raises:
            CallRefused: TUBE_NOT_FOUND, TASK_NOT_FOUND, INVALID_FIELD.
        """
        request = call.request
        _check(request)
        queue = await self._reader.queue(request.consistency)
        if queue.tube(request.tube) is None:
            raise tube_not_found(request.tube)
        (first,) = self._reader.queues.queue_of(request.tube).get_tasks(request.tube, (request.id,))
        if first is None:
            raise CallRefused(
                error_pb2.Error.TASK_NOT_FOUND,
                f"there is no task {request.id} in the tube",
                {"tube": request.tube, "task_id": str(request.id)},
            )
        revision = queue.applied_index
        walk = _Walk(self._reader, call.caller, first, request.tasks_max or TASKS_MAX)
        await walk.run(request.depth_max or DEPTH_MAX)
        answer = pb.GetTaskGraphResponse(
            edges=[_edge(*ends) for ends in walk.edges],
            truncated=walk.is_truncated,
            revision=revision,
            now_ms=self._reader.wall_now_ms(),
        )
        tasks = encode_tasks(
            list(walk.tasks.values()),
            pb.GetTaskGraphResponse.TASKS_FIELD_NUMBER,
            self._reader.wall_offset_ms,
            shorten_session=True,
        )
        return b"".join((answer.SerializeToString(), *tasks))


class _Walk:
    """Collects the tasks and edges around a task, level by level.

    Between two slices, entries may be applied; each slice reads the newest state.
    """

    def __init__(
        self, reader: QueueReader, caller: Caller, first: TaskView, tasks_max: int
    ) -> None:
        self.tasks: Final[dict[Place, TaskView]] = {}
        self.edges: Final[dict[tuple[Place, Place], None]] = {}
        """The edges in the order in which they were found, each from a task to its dependent."""
        self.is_truncated = False
        self._reader = reader
        self._caller = caller
        self._tasks_max = tasks_max
        self._found: list[TaskView] = []
        """The tasks whose neighbours were not read yet."""
        self._read = 0
        """Number of neighbours that were read, with the size of their content."""
        self._pause_at = SLICE_NEIGHBOURS
        self._add(first, may_add=True)

    async def run(self, depth_max: int) -> None:
        """Collect the tasks up to a distance, and the edges between them."""
        for depth in range(depth_max + 1):
            level, self._found = self._found, []
            for view in level:
                await self._add_dependencies(view, may_add=depth < depth_max)
                await self._add_dependents(view, may_add=depth < depth_max)

    async def _add_dependencies(self, view: TaskView, *, may_add: bool) -> None:
        """Add the tasks that a task waits for; an edge may lead to a task that is not shown."""
        waiting = view.extras.waiting
        for awaited in waiting.open if waiting is not None else ():
            if self._has_read_enough():
                return
            place = (awaited.tube, awaited.id)
            found = None
            if self._caller.may(Verb.READ, awaited.tube):
                queue = self._reader.queues.queue_of(awaited.tube)
                (found,) = queue.get_tasks(awaited.tube, (awaited.id,))
            await self._count(found)
            if found is None or self._add(found, may_add=may_add):
                self.edges[place, (view.tube, view.id)] = None

    async def _add_dependents(self, view: TaskView, *, may_add: bool) -> None:
        """Add the tasks that wait for a task."""
        after = FIRST
        while True:
            queue = self._reader.queues.queue_of(view.tube)
            dependents = queue.dependents(
                view.tube, view.id, after, SLICE_NEIGHBOURS, CONTENT_SLICE_BYTES
            )
            for member, dependent in dependents:
                if self._has_read_enough():
                    return
                await self._count(dependent)
                after = member
                may_see = self._caller.may(Verb.READ, dependent.tube)
                if may_see and self._add(dependent, may_add=may_add):
                    self.edges[(view.tube, view.id), (dependent.tube, dependent.id)] = None
            if not dependents:
                return

    def _has_read_enough(self) -> bool:
        """Return whether the call may read no more neighbours; the graph is then truncated."""
        if self._read < NEIGHBOURS_MAX:
            return False
        self.is_truncated = True
        return True

    async def _count(self, neighbour: TaskView | None) -> None:
        """Count a neighbour that was read, and let other work run between two slices."""
        self._read += 1
        if neighbour is not None:
            self._read += len(neighbour.body) // NEIGHBOUR_BYTES
        if self._read >= self._pause_at:
            self._pause_at = self._read + SLICE_NEIGHBOURS
            await next_turn()

    def _add(self, view: TaskView, *, may_add: bool) -> bool:
        """Add a task if there is room; return whether the graph has the task."""
        place = (view.tube, view.id)
        if place in self.tasks:
            return True
        if not may_add or len(self.tasks) >= self._tasks_max:
            self.is_truncated = True
            return False
        self.tasks[place] = replace(view, body=without_payload(view.body))
        self._found.append(view)
        return True


def _edge(dependency: Place, dependent: Place) -> pb.TaskGraphEdge:
    return pb.TaskGraphEdge(
        dependency=task_pb2.TaskReference(tube=dependency[0], id=dependency[1]),
        dependent=task_pb2.TaskReference(tube=dependent[0], id=dependent[1]),
    )


def _check(request: pb.GetTaskGraphRequest) -> None:
    violations = Violations()
    violations.check_tube("tube", request.tube)
    violations.check_positive("id", request.id)
    violations.check_range("depth_max", request.depth_max, 0, DEPTH_MAX)
    violations.check_range("tasks_max", request.tasks_max, 0, TASKS_MAX)
    violations.check_consistency(request.consistency)
    violations.raise_if_any()
