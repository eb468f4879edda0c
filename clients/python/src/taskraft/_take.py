"""Take tasks from one or several tubes, with as many calls as the wait needs."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict

from taskraft import errors
from taskraft._answering_node import AnsweringNode, reported_to
from taskraft._arguments import Texts, check_known, flag, text, texts
from taskraft._async_taken_task import AsyncTakenTask
from taskraft._clock import monotonic
from taskraft._durations import Duration, milliseconds, seconds
from taskraft._leader_caller import new_request_id
from taskraft._lease import Lease
from taskraft._message_fields import set_field, set_fields
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from taskraft._connection import Connection

TAKE_WAIT_SECONDS_MAX: Final = 20.0
"""Maximum wait of one call, in seconds; a longer wait uses several calls, so that the loss of a
node is noticed."""


TubeSources: TypeAlias = "str | Iterable[str] | Mapping[str, int]"
"""One tube, several tubes in order of precedence, or tubes with their weights. A name may be a
pattern in which ``*`` matches any characters."""


class TouchOptions(TypedDict, total=False):
    """Options of automatic lease renewal."""

    touch_max: Duration
    """Maximum time for which the lease of a task in progress is renewed; 0: no renewal. Default: no
    limit."""


def touch_seconds_max(options: TouchOptions) -> float:
    """Return the maximum time of lease renewal, in seconds."""
    return seconds(options["touch_max"], "touch_max") if "touch_max" in options else float("inf")


class TakeOptions(TouchOptions, total=False):
    """Options of a take."""

    types: Texts
    """Only tasks of these types."""
    priority_bound: int
    """Only tasks at least as urgent as this priority."""
    yielding: bool
    """True: while consumers wait, let the consumers of a tube that do not yield get its tasks
    first. For a general consumer, for example of the pattern ``*``."""
    ttr: Duration
    """TTR of the leases, instead of the tasks' own TTR."""
    bytes_max: int
    """Maximum payload bytes of all taken tasks; at least one task is returned."""
    task_id: int
    """Take this task, if it is READY, DELAYED or BURIED."""
    session: bool
    """True (default): the client's session holds the leases. False: the leases last for their TTR
    only, so that another process can settle them by token."""


def take_sources(
    sources: TubeSources, *, yielding: bool = False
) -> list[task_service_pb2.TakeSource]:
    """Return the tubes as messages.

    Raises:
        TypeError: the value does not name tubes.
    """
    messages = _weighed(sources)
    if flag("yielding", yielding):
        for message in messages:
            message.yielding = True
    return messages


def _weighed(sources: TubeSources) -> list[task_service_pb2.TakeSource]:
    """Return the tubes with their weights, if they have weights."""
    if not isinstance(sources, Mapping):
        return [task_service_pb2.TakeSource(tube=tube) for tube in texts("tubes", sources)]
    weighed = []
    for tube, weight in sources.items():
        source = task_service_pb2.TakeSource(tube=text("tubes", tube))
        set_field(source, "weight", weight, f"the weight of {tube}")
        weighed.append(source)
    return weighed


async def take_tasks(
    connection: Connection,
    sources: TubeSources,
    tasks_max: int,
    *,
    wait: Duration | None,
    timeout: Duration | None,
    options: TakeOptions,
) -> list[AsyncTakenTask]:
    """Take up to `tasks_max` tasks from one or several tubes."""
    check_known(options, TakeOptions, "take has no option")
    longest = touch_seconds_max(options)
    connection.check_usable()
    wait_end = None if wait is None else monotonic() + seconds(wait, "wait")
    while True:
        left = TAKE_WAIT_SECONDS_MAX if wait_end is None else max(wait_end - monotonic(), 0.0)
        wait_seconds = min(left, TAKE_WAIT_SECONDS_MAX)
        request = _take_request(sources, tasks_max, wait_seconds, options)
        tasks = await _take_once(connection, request, wait_seconds, timeout, options)
        if tasks or (wait_end is not None and monotonic() >= wait_end):
            return [
                AsyncTakenTask(
                    message, connection.settler, Lease(message, touch_seconds_max=longest)
                )
                for message in tasks
            ]


def _take_request(
    sources: TubeSources, tasks_max: int, wait_seconds: float, options: TakeOptions
) -> task_service_pb2.TakeTasksRequest:
    request = task_service_pb2.TakeTasksRequest(
        sources=take_sources(sources, yielding=options.get("yielding", False)),
        wait_ms=round(wait_seconds * 1_000),
        types=texts("types", options.get("types", ())),
    )
    set_field(request, "tasks_max", tasks_max)
    set_fields(request, ("priority_bound", "task_id", "bytes_max"), dict(options))
    if "ttr" in options:
        request.ttr_ms = milliseconds(options["ttr"], "ttr")
    return request


async def _take_once(
    connection: Connection,
    request: task_service_pb2.TakeTasksRequest,
    wait_seconds: float,
    timeout: Duration | None,
    options: TakeOptions,
) -> Sequence[task_pb2.Task]:
    """Make one call; open a new session if the server does not know the client's session."""
    spans, answering, started_ns = connection.spans, AnsweringNode(), time.time_ns()
    deadline = connection.deadline(timeout, wait_seconds)
    while True:
        request.request_id = new_request_id()
        if flag("session", options.get("session", True)):
            request.session_id = await connection.take_session.session_id(deadline)
        try:
            with reported_to(answering if spans is not None else None):
                response = await connection.caller.call(
                    lambda node: node.tasks.TakeTasks,
                    request,
                    deadline=deadline,
                    wait_seconds=wait_seconds,
                )
        except (asyncio.CancelledError, errors.DeadlinePassed, errors.RetryableError):
            # The take may have leased tasks, or may still lease some.
            connection.abandoned_takes.add(request)
            raise
        except errors.SessionNotFound:
            if not request.session_id or monotonic() >= deadline:
                raise
            connection.take_session.lost(request.session_id)
            continue
        if response.tasks and spans is not None:
            spans.received(response.tasks, started_ns, answering.address)
        return response.tasks
