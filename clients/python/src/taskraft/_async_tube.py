"""Put into and take from one tube, with asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from taskraft import errors
from taskraft._async_chosen import WAIT_SECONDS_MAX, AsyncChosenTasks
from taskraft._calls import new_request_id
from taskraft._connection import put_outcomes
from taskraft._durations import Duration, milliseconds, seconds
from taskraft._joiner import MESSAGE_BYTES_MAX, MESSAGE_ITEMS_MAX, only, raise_refused
from taskraft._payload import Payload
from taskraft._planned import PlannedTask, planned
from taskraft._sources import Sources, sources_of
from taskraft._spec import PutOptions, prototype, spec_of
from taskraft._taken import AsyncTakenTask
from taskraft._task import Task
from taskraft.v1 import task_pb2, task_service_pb2, tube_service_pb2

if TYPE_CHECKING:
    from taskraft._connection import Connection
    from taskraft._joiner import Outcome

PUTS_IN_HAND: Final = 4
"""Messages of one put_many that are built ahead of the one on its way."""
TAKE_WAIT_SECONDS_MAX: Final = 20.0
"""A longer wait for a task is made of several calls, so that a lost node is noticed."""
SPEC_BYTES: Final = 16
"""What a task takes in a message beside its payload and headers, about."""


class TakeOptions(TypedDict, total=False):
    """Which tasks are taken, and how they are held."""

    types: Sequence[str]
    """Only tasks of these types."""
    priority_bound: int
    """Only tasks at least as urgent as this."""
    ttr: Duration
    """Time to run of the leases instead of the tasks' own."""
    bytes_max: int
    """At most so many bytes of payload, but always one task."""
    task_id: int
    """This task, if it is ready, delayed or buried."""
    session: bool
    """Hold the tasks by the client's session (default), or by their time to run alone, so that
    another process may settle them by their tokens."""


class AsyncTube(AsyncChosenTasks):
    """A handle of one tube; making one does not ask the server."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # ----------------------------------------------------------------------------------- put

    async def put(
        self, payload: Payload, *, timeout: Duration | None = None, **options: Unpack[PutOptions]
    ) -> int:
        """Put a task and return its id once it is on the disks of a majority.

        Concurrent calls are joined into one message. A failed attempt is repeated with the same
        request_id until the time is over, so that the task is put once.

        Args:
            payload: Bytes as they are, a str as UTF-8, anything else as JSON.
            timeout: How long to try; the client's timeout by default.
            **options: See `PutOptions`.

        Raises:
            KeyTaken: An unfinished task has the unique key.
            TaskraftError: Any other refusal.
        """
        spec = spec_of(payload, prototype(options) if options else None)
        with self._traced_send([spec]) as task_ids:
            outcomes = await self._submit([spec], timeout)
            task_id = only(outcomes)
            task_ids.append(task_id)
            return task_id

    async def put_many(
        self,
        payloads: Iterable[Payload] | AsyncIterable[Payload],
        *,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> list[int]:
        """Put many tasks in order and return their ids; at most a few messages are in memory.

        Args:
            payloads: Read as fast as the server accepts them.
            timeout: How long to try each message.
            **options: The same for all tasks.

        Raises:
            ItemsRefused: Some were refused; all others were put.
            TaskraftError: A message failed as a whole; what was read before it may have been put.
        """
        shared = prototype(options) if options else None
        outcomes: list[Outcome[int]] = []
        in_hand: deque[asyncio.Task[list[Outcome[int]]]] = deque()
        try:
            async for specs in _messages(payloads, shared):
                in_hand.append(self._start_put(specs, timeout))
                if len(in_hand) >= PUTS_IN_HAND:
                    outcomes += await in_hand.popleft()
            while in_hand:
                outcomes += await in_hand.popleft()
        finally:
            for put in in_hand:
                put.cancel()
        return _ids_or_refusal(outcomes)

    async def put_atomic(
        self,
        payloads: Iterable[Payload],
        *,
        room_wait: Duration = 0,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> list[int]:
        """Put tasks all or none, in one message.

        Args:
            payloads: At most 10 000.
            room_wait: In a tube with a capacity: wait so long for room.
            timeout: How long to try.
            **options: The same for all tasks.
        """
        shared = prototype(options) if options else None
        specs = [spec_of(payload, shared) for payload in payloads]
        request = task_service_pb2.PutTasksRequest(
            request_id=new_request_id(),
            tube=self.name,
            atomic=True,
            room_wait_ms=milliseconds(room_wait),
        )
        with self._traced_send(specs) as task_ids:
            request.tasks.extend(specs)
            response = await self._connection.call(
                lambda node: node.tasks.PutTasks,
                request,
                timeout=timeout,
                wait_seconds=seconds(room_wait),
            )
            task_ids.extend(_ids_or_refusal(put_outcomes(response)))
            return task_ids

    async def put_and_wait(
        self,
        payload: Payload,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> Task:
        """Put a task, wait until it has ended or is buried, and return it as it is then.

        Args:
            payload: As for `put`.
            wait: How long; absent without limit. What is beyond a minute is waited for like `wait`.
            timeout: How long to try to reach the cluster, beyond the wait.
            **options: See `PutOptions`.

        Returns:
            The task with its `outcome`, TIMEOUT where the time was over first, and its `result`.
        """
        wait_end = None if wait is None else time.monotonic() + seconds(wait)
        wait_seconds = WAIT_SECONDS_MAX if wait is None else min(seconds(wait), WAIT_SECONDS_MAX)
        spec = spec_of(payload, prototype(options) if options else None)
        request = task_service_pb2.PutTasksRequest(
            request_id=new_request_id(),
            tube=self.name,
            outcome_wait_ms=max(round(wait_seconds * 1_000), 1),
        )
        with self._traced_send([spec]) as task_ids:
            request.tasks.append(spec)
            response = await self._connection.call(
                lambda node: node.tasks.PutTasks,
                request,
                timeout=timeout,
                wait_seconds=wait_seconds,
            )
            task_ids.append(only(put_outcomes(response)))
        task = Task(response.outcomes[0])
        left = None if wait_end is None else max(wait_end - time.monotonic(), 0.0)
        if task.outcome != "TIMEOUT" or left == 0.0:
            return task
        (task,) = await self.wait(task.id, wait=left, timeout=timeout)
        return task

    def task(self, payload: Payload, **options: Unpack[PutOptions]) -> PlannedTask:
        """Return a task for this tube that is not put yet: for schedules, groups and batches."""
        return planned(self.name, payload, options)

    def _start_put(
        self, specs: list[task_pb2.TaskSpec], timeout: Duration | None
    ) -> asyncio.Task[list[Outcome[int]]]:
        async def put() -> list[Outcome[int]]:
            with self._traced_send(specs):
                return await self._submit(specs, timeout)

        return asyncio.create_task(put())

    async def _submit(
        self, specs: Sequence[task_pb2.TaskSpec], timeout: Duration | None
    ) -> list[Outcome[int]]:
        connection = self._connection
        connection.use()
        size_bytes = sum(len(spec.payload) for spec in specs) + SPEC_BYTES * len(specs)
        deadline = connection.deadline(timeout)
        return await connection.puts(self.name).submit(specs, size_bytes, deadline)

    def _traced_send(self, specs: Sequence[task_pb2.TaskSpec]) -> AbstractContextManager[list[int]]:
        """Return the span of a put, which names the ids that are added to its value."""
        spans = self._connection.spans
        return nullcontext([]) if spans is None else spans.send(self.name, specs)

    # ---------------------------------------------------------------------------------- take

    async def take(
        self,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> AsyncTakenTask | None:
        """Take the next task.

        Args:
            wait: How long to wait for one; absent without limit, 0 not at all.
            timeout: How long to try to reach the cluster, beyond the wait.
            **options: See `TakeOptions`.

        Returns:
            The task, or None if there was none in time.
        """
        tasks = await self.take_many(1, wait=wait, timeout=timeout, **options)
        return tasks[0] if tasks else None

    async def take_many(
        self,
        tasks_max: int,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> list[AsyncTakenTask]:
        """Take up to `tasks_max` tasks, at most 1 000; wait only for the first."""
        return await take_tasks(
            self._connection, self.name, tasks_max, wait=wait, timeout=timeout, options=options
        )

    # ---------------------------------------------------------------------------- the tube

    async def release_all(self, *, timeout: Duration | None = None) -> int:
        """Release all taken tasks, whoever holds them; return how many."""
        request = tube_service_pb2.ReleaseAllRequest(request_id=new_request_id(), name=self.name)
        response = await self._connection.call(
            lambda node: node.tubes.ReleaseAll, request, timeout=timeout
        )
        return response.tasks

    async def stats(self, *, timeout: Duration | None = None) -> tube_service_pb2.TubeStatistics:
        """Return how many tasks are in each state, and how many calls there were.

        Raises:
            TubeNotFound: There is no such tube.
        """
        request = tube_service_pb2.GetStatisticsRequest(tubes=[self.name])
        response = await self._connection.call(
            lambda node: node.tubes.GetStatistics, request, timeout=timeout
        )
        for statistics in response.tubes:
            return statistics
        raise errors.TubeNotFound(f'no tube has the name "{self.name}"')


async def take_tasks(
    connection: Connection,
    sources: Sources,
    tasks_max: int,
    *,
    wait: Duration | None,
    timeout: Duration | None,
    options: TakeOptions,
) -> list[AsyncTakenTask]:
    """Take up to `tasks_max` tasks from one or several tubes."""
    connection.use()
    wait_end = None if wait is None else time.monotonic() + seconds(wait)
    while True:
        left = TAKE_WAIT_SECONDS_MAX if wait_end is None else max(wait_end - time.monotonic(), 0.0)
        wait_seconds = min(left, TAKE_WAIT_SECONDS_MAX)
        request = _take_request(sources, tasks_max, wait_seconds, options)
        tasks = await _take_once(connection, request, wait_seconds, timeout, options)
        if tasks or (wait_end is not None and time.monotonic() >= wait_end):
            return [AsyncTakenTask(message, connection.leases) for message in tasks]


def _take_request(
    sources: Sources, tasks_max: int, wait_seconds: float, options: TakeOptions
) -> task_service_pb2.TakeTasksRequest:
    request = task_service_pb2.TakeTasksRequest(
        sources=sources_of(sources),
        tasks_max=tasks_max,
        wait_ms=round(wait_seconds * 1_000),
        types=options.get("types", ()),
        bytes_max=options.get("bytes_max", 0),
    )
    if "priority_bound" in options:
        request.priority_bound = options["priority_bound"]
    if "task_id" in options:
        request.task_id = options["task_id"]
    if "ttr" in options:
        request.ttr_ms = milliseconds(options["ttr"])
    return request


async def _take_once(
    connection: Connection,
    request: task_service_pb2.TakeTasksRequest,
    wait_seconds: float,
    timeout: Duration | None,
    options: TakeOptions,
) -> Sequence[task_pb2.Task]:
    """Make one call; open another session when the server does not know ours any more."""
    started_ns = time.time_ns()
    deadline = connection.deadline(timeout, wait_seconds)
    while True:
        request.request_id = new_request_id()
        if options.get("session", True):
            request.session_id = await connection.take_session.session_id(deadline)
        try:
            response = await connection.caller.call(
                lambda node: node.tasks.TakeTasks,
                request,
                deadline=deadline,
                wait_seconds=wait_seconds,
            )
        except errors.SessionNotFound:
            if not request.session_id or time.monotonic() >= deadline:
                raise
            connection.take_session.lost(request.session_id)
            continue
        if response.tasks and connection.spans is not None:
            connection.spans.received(response.tasks, started_ns)
        return response.tasks


class _Packer:
    """Collect tasks until a message is as large as it may be."""

    def __init__(self, shared: task_pb2.TaskSpec | None) -> None:
        self._shared = shared
        self._specs: list[task_pb2.TaskSpec] = []
        self._size_bytes = 0

    def add(self, payload: Payload) -> bool:
        """Add a task; return whether the message is full."""
        spec = spec_of(payload, self._shared)
        self._specs.append(spec)
        self._size_bytes += len(spec.payload) + SPEC_BYTES
        return len(self._specs) >= MESSAGE_ITEMS_MAX or self._size_bytes >= MESSAGE_BYTES_MAX

    def take(self) -> list[task_pb2.TaskSpec]:
        """Return what was collected, and begin anew."""
        specs, self._specs, self._size_bytes = self._specs, [], 0
        return specs


async def _messages(
    payloads: Iterable[Payload] | AsyncIterable[Payload], shared: task_pb2.TaskSpec | None
) -> AsyncIterator[list[task_pb2.TaskSpec]]:
    """Yield lists of specs, each as large as one message may be."""
    packer = _Packer(shared)
    if isinstance(payloads, AsyncIterable):
        async for payload in payloads:
            if packer.add(payload):
                yield packer.take()
    else:
        for payload in payloads:
            if packer.add(payload):
                yield packer.take()
    if rest := packer.take():
        yield rest


def _ids_or_refusal(outcomes: Sequence[Outcome[int]]) -> list[int]:
    task_ids = [0 if isinstance(each, errors.TaskraftError) else each for each in outcomes]
    raise_refused(outcomes, task_ids=task_ids)
    return task_ids
