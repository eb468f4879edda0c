"""Methods of `AsyncTube` that put tasks."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Unpack

from taskraft import errors
from taskraft._async_waits import WAIT_SECONDS_MAX, AsyncWaits
from taskraft._clock import monotonic
from taskraft._connection import put_outcomes
from taskraft._durations import Duration, milliseconds, seconds
from taskraft._handler_slots import waiting_for_tasks
from taskraft._leader_caller import chosen_request_id
from taskraft._payload import Payload
from taskraft._planned_task import PlannedTask, plan_task
from taskraft._put_messages import counted_bytes, put_messages, spec_of_item
from taskraft._put_options import PutOptions, spec_of, spec_template
from taskraft._request_batcher import raise_refused, single_outcome
from taskraft._task import Task
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from taskraft._request_batcher import ItemOutcome

PUTS_IN_FLIGHT_MAX: Final = 4
"""Maximum number of messages of one put_many that are built before the oldest is answered."""


class AsyncPuts(AsyncWaits):
    """The methods of `AsyncTube` that put tasks."""

    async def put(
        self,
        payload: Payload,
        *,
        request_id: str | None = None,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> int:
        """Put a task and return its id after a majority of the nodes has stored it durably.

        Concurrent calls are sent in one message. A failed attempt is retried with the same
        request_id until the deadline, so the task is put once.

        Args:
            payload: bytes are sent unchanged, a str as UTF-8, any other value as JSON.
            request_id: idempotency key chosen by the caller, 1 to 64 bytes, such as "order-4711".
                A put with the same principal, `client_id`, `request_id` and content has no second
                effect for at least 10 minutes, also from another process, and returns the first
                id. The put is sent in a separate message, and its task joins no trace. Default: a
                random key for each call.
            timeout: time limit of the call, retries included; default: the client's timeout.
            **options: see `PutOptions`.

        Raises:
            KeyTaken: an unfinished task has the unique key.
            RequestIdReused: an earlier request with this request_id had another content.
            TaskraftError: the put was refused or failed.
        """
        spec = spec_of(payload, spec_template(options, self.name) if options else None)
        with self._traced_send([spec], joins_trace=request_id is None) as task_ids:
            if request_id is None:
                outcomes = await self._submit([spec], timeout)
            else:
                outcomes = await self._put_alone(spec, timeout, request_id)
            task_id = single_outcome(outcomes)
            task_ids.append(task_id)
            return task_id

    async def put_and_read(
        self,
        payload: Payload,
        *,
        request_id: str | None = None,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> Task:
        """Put a task and return it as it is afterwards, with the defaults of the tube applied.

        The call needs one round trip, and the permission to read the tube. The task of an
        `on_conflict` policy other than "fail" may be an existing task. A repeated call with the
        same request_id returns the task as it is then.

        Args:
            payload: as for `put`.
            request_id: idempotency key chosen by the caller, see `put`.
            timeout: time limit of the call, retries included.
            **options: see `PutOptions`.

        Returns:
            The task; without its payload if it existed before.

        Raises:
            TaskraftError: the put was refused or failed.
        """
        spec = spec_of(payload, spec_template(options, self.name) if options else None)
        request = task_service_pb2.PutTasksRequest(
            request_id=chosen_request_id(request_id), tube=self.name, return_tasks=True
        )
        with self._traced_send([spec], joins_trace=request_id is None) as task_ids:
            request.tasks.append(spec)
            response = await self._connection.call(
                lambda node: node.tasks.PutTasks, request, timeout=timeout
            )
            task_ids.append(single_outcome(put_outcomes(response)))
        (message,) = response.tasks
        if not response.existing:
            message.spec.payload = spec.payload
        return Task(message)

    async def put_many(
        self,
        payloads: Iterable[Payload | PlannedTask] | AsyncIterable[Payload | PlannedTask],
        *,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> list[int]:
        """Put many tasks in order and return their ids; only a few messages are held in memory.

        After a cancellation, each task that was read may be put, at most once.

        Args:
            payloads: consumed as fast as the server accepts the tasks. A planned task of this
                tube (`Tube.task`) is put with its own options.
            timeout: time limit of each message, retries included.
            **options: options of all tasks, see `PutOptions`.

        Raises:
            ItemsRefused: some tasks were refused; all other tasks were put.
            TaskraftError: a message failed as a whole; tasks that were read before it may have been
                put.
        """
        shared = spec_template(options, self.name) if options else None
        outcomes: list[ItemOutcome[int]] = []
        in_flight: deque[asyncio.Task[list[ItemOutcome[int]]]] = deque()
        try:
            async for specs in put_messages(self.name, payloads, shared):
                in_flight.append(self._start_put(specs, timeout))
                if len(in_flight) >= PUTS_IN_FLIGHT_MAX:
                    outcomes += await in_flight.popleft()
            while in_flight:
                outcomes += await in_flight.popleft()
        finally:
            for put in in_flight:
                put.cancel()
        return _ids_or_refusal(outcomes)

    async def put_atomic(
        self,
        payloads: Iterable[Payload | PlannedTask],
        *,
        room_wait: Duration = 0,
        request_id: str | None = None,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> list[int]:
        """Put all tasks or none, in one message.

        Args:
            payloads: at most 1 000. A planned task of this tube is put with its own options.
            room_wait: maximum time to wait on the server for capacity in the tube; 0: do not wait.
            request_id: idempotency key chosen by the caller, see `put`.
            timeout: time limit of the call beyond `room_wait`, retries included.
            **options: options of all tasks, see `PutOptions`.
        """
        shared = spec_template(options, self.name) if options else None
        specs = [spec_of_item(self.name, payload, shared) for payload in payloads]
        request = task_service_pb2.PutTasksRequest(
            request_id=chosen_request_id(request_id),
            tube=self.name,
            atomic=True,
            room_wait_ms=milliseconds(room_wait, "room_wait"),
        )
        with self._traced_send(specs, joins_trace=request_id is None) as task_ids:
            request.tasks.extend(specs)
            response = await self._connection.call(
                lambda node: node.tasks.PutTasks,
                request,
                timeout=timeout,
                wait_seconds=seconds(room_wait, "room_wait"),
            )
            task_ids.extend(_ids_or_refusal(put_outcomes(response)))
            return task_ids

    async def put_and_wait(
        self,
        payload: Payload,
        *,
        wait: Duration | None = None,
        request_id: str | None = None,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> Task:
        """Put a task, wait until it has ended or is BURIED, and return it.

        A handler that calls this method releases its concurrency slot during the wait. After a
        cancellation, a task that was put stays in the tube.

        Args:
            payload: as for `put`.
            wait: maximum wait; default: no limit. A wait of more than one minute continues like
                `wait`.
            request_id: idempotency key chosen by the caller, see `put`.
            timeout: time limit of the call beyond the wait, retries included.
            **options: see `PutOptions`.

        Returns:
            The task with its `outcome` and `result`. The outcome is TIMEOUT if the task has not
            ended in time.
        """
        wait_end = None if wait is None else monotonic() + seconds(wait, "wait")
        wait_seconds = (
            WAIT_SECONDS_MAX if wait is None else min(seconds(wait, "wait"), WAIT_SECONDS_MAX)
        )
        spec = spec_of(payload, spec_template(options, self.name) if options else None)
        request = task_service_pb2.PutTasksRequest(
            request_id=chosen_request_id(request_id),
            tube=self.name,
            outcome_wait_ms=max(round(wait_seconds * 1_000), 1),
        )
        async with waiting_for_tasks():
            return await self._put_and_wait_until(
                wait_end, request, spec, wait_seconds, timeout, joins_trace=request_id is None
            )

    async def _put_and_wait_until(
        self,
        wait_end: float | None,
        request: task_service_pb2.PutTasksRequest,
        spec: task_pb2.TaskSpec,
        wait_seconds: float,
        timeout: Duration | None,
        *,
        joins_trace: bool,
    ) -> Task:
        with self._traced_send([spec], joins_trace=joins_trace) as task_ids:
            request.tasks.append(spec)
            response = await self._connection.call(
                lambda node: node.tasks.PutTasks,
                request,
                timeout=timeout,
                wait_seconds=wait_seconds,
            )
            task_ids.append(single_outcome(put_outcomes(response)))
        task = Task(response.outcomes[0])
        left = None if wait_end is None else max(wait_end - monotonic(), 0.0)
        if task.outcome not in ("", "TIMEOUT") or left == 0.0:
            return task
        (task,) = await self.wait(task.id, wait=left, timeout=timeout)
        return task

    def task(self, payload: Payload, **options: Unpack[PutOptions]) -> PlannedTask:
        """Return a task for this tube without putting it, for schedules, groups and batches."""
        return plan_task(self.name, payload, options)

    def _start_put(
        self, specs: list[task_pb2.TaskSpec], timeout: Duration | None
    ) -> asyncio.Task[list[ItemOutcome[int]]]:
        async def put() -> list[ItemOutcome[int]]:
            with self._traced_send(specs):
                return await self._submit(specs, timeout)

        return asyncio.create_task(put())

    async def _submit(
        self, specs: Sequence[task_pb2.TaskSpec], timeout: Duration | None
    ) -> list[ItemOutcome[int]]:
        connection = self._connection
        connection.check_usable()
        size_bytes = sum(map(counted_bytes, specs))
        deadline = connection.deadline(timeout)
        return await connection.puts(self.name).submit(specs, size_bytes, deadline)

    async def _put_alone(
        self, spec: task_pb2.TaskSpec, timeout: Duration | None, request_id: str
    ) -> list[ItemOutcome[int]]:
        """Put a task in a separate message, because concurrent puts would change its content."""
        connection = self._connection
        connection.check_usable()
        chosen = chosen_request_id(request_id)
        return await connection.put(self.name, [spec], connection.deadline(timeout), chosen)

    def _traced_send(
        self, specs: Sequence[task_pb2.TaskSpec], *, joins_trace: bool = True
    ) -> AbstractContextManager[list[int]]:
        """Trace a put; yields a list to which the caller adds the new task ids."""
        spans = self._connection.spans
        if spans is None:
            return nullcontext([])
        return spans.send(self.name, specs, joins_trace=joins_trace)


def _ids_or_refusal(outcomes: Sequence[ItemOutcome[int]]) -> list[int]:
    task_ids = [0 if isinstance(each, errors.TaskraftError) else each for each in outcomes]
    raise_refused(outcomes, task_ids=task_ids)
    return task_ids
