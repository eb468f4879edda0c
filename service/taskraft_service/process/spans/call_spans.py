"""Create the server spans of unary calls, and a span for the way of each command through the log.

Source: OpenTelemetry semantic conventions for RPC, version 1.37. A call without a trace context of
its caller or of its tasks has no span. The span is a child of the caller's span, or of the task's
if the call has the context of one task only; all other contexts are links.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import structlog
from google.protobuf.message import Message
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service.api.rpc.call_load import CallCounts
from taskraft_service.api.rpc.forwarding_metadata import HOPS_KEY
from taskraft_service.api.rpc.message_fields import LONG_REQUEST_BYTES, begin_long_message
from taskraft_service.api.rpc.method_table import UnaryHandle
from taskraft_service.api.rpc.methods import parse_request
from taskraft_service.api.rpc.server_context import ServerContext
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.command_submitter import AppliedCommand, CommandSubmitter
from taskraft_service.process.spans.trace_links import caller_of, creation_of, creations_of
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.operations.registry import Command
from taskraft_service.queue.operations.settlements import Settle

log: Final = structlog.get_logger(__name__)

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.37.0"
LINKS_MAX: Final = 128
"""Maximum number of links per span, as in the SDK."""
_SERVICE: Final = "/taskraft.v1.TaskService/"
PUT: Final = f"{_SERVICE}PutTasks"
TAKE: Final = f"{_SERVICE}TakeTasks"
SETTLE: Final = f"{_SERVICE}SettleTasks"

M = TypeVar("M", bound=Message)
PutListener = Callable[[str, int, SpanContext], None]
"""Called with the tube, the id and the trace context of each sampled new task."""


class _Request(NamedTuple):
    """The parts of a call that its span shows."""

    contexts: Sequence[SpanContext]
    """Trace contexts of the tasks."""
    specs: Sequence[task_pb2.TaskSpec] = ()
    tube: str = ""


_NOTHING: Final = _Request(())


async def _parsed(message: type[M], raw: bytes) -> M:
    """Return a request whose lists may be walked.

    Raises:
        CallRefused: the request is malformed, or too large.
    """
    if len(raw) > LONG_REQUEST_BYTES:
        await begin_long_message(raw, message)
    return parse_request(message, raw)


class CallSpans:
    """Creates the spans of one node.

    Args:
        tracer: tracer of the process.
        lease: returns the task of a lease token, or None.
        counts: durations of the calls, which get an exemplar for each sampled call.
        task_put: called for each sampled new task.
    """

    def __init__(
        self,
        tracer: trace.Tracer,
        lease: Callable[[int], TaskView | None],
        counts: CallCounts,
        task_put: PutListener,
    ) -> None:
        self._tracer = tracer
        self._lease = lease
        self._counts = counts
        self._task_put = task_put

    def traced(self, path: str, handle: UnaryHandle) -> UnaryHandle:
        """Return the handler of a unary method with spans around its calls."""
        name = path.removeprefix("/")
        service, _, method = name.rpartition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}

        async def traced(raw: bytes, context: ServerContext) -> bytes | None:
            metadata = dict(context.invocation_metadata() or ())
            caller = caller_of(metadata)
            request = await self._request_of(path, raw)
            contexts = [one for one in (caller, *request.contexts) if one is not None]
            if not contexts and path != TAKE:
                return await handle(raw, context)
            started_ns = time.time_ns()
            parent, links = _parent_and_links(caller, contexts)
            start = partial(
                self._tracer.start_span,
                name,
                kind=SpanKind.SERVER,
                attributes=attributes,
                start_time=started_ns,
            )
            if path == TAKE and caller is None:
                answer = await handle(raw, context)
                self._trace_take(answer, start)
                return answer
            span = start(context=parent, links=links)
            with trace.use_span(span, end_on_exit=True, record_exception=False):
                answer = await handle(raw, context)
                log.debug("traced call", method=method, tube=request.tube)
                self._add_exemplar(path, span, started_ns)
                if HOPS_KEY not in metadata:  # the node that forwarded the call follows the tasks
                    self._note_puts(request, answer)
            return answer

        return traced

    async def _request_of(self, path: str, raw: bytes) -> _Request:
        """Return the attributes of the span of a call; a malformed request has none."""
        try:
            if path == PUT:
                put = await _parsed(task_service_pb2.PutTasksRequest, raw)
                return _Request(_first(creations_of(put.tasks)), put.tasks, put.tube)
            if path == SETTLE:
                settle = await _parsed(task_service_pb2.SettleTasksRequest, raw)
                tokens = (token for one in settle.settlements for token in one.tokens)
                return _Request(self.creations(tokens))
        except CallRefused:  # the handler refuses the call too
            return _NOTHING
        return _NOTHING

    def creations(self, tokens: Iterable[int]) -> Sequence[SpanContext]:
        """Return the trace contexts of the tasks of leases, at most ``LINKS_MAX``."""
        return _first(creations_of(self._leased(tokens)))

    def _leased(self, tokens: Iterable[int]) -> Iterable[task_pb2.TaskSpec]:
        """Yield the tasks of the leases that this node knows."""
        for token in tokens:
            view = self._lease(token)
            if view is not None:
                yield task_pb2.TaskSpec.FromString(view.body)

    def _trace_take(self, answer: bytes | None, start: Callable[..., Span]) -> None:
        """Create the span of a take, whose tasks are known only afterwards."""
        tasks = task_service_pb2.TakeTasksResponse.FromString(answer or b"").tasks
        contexts = _first(creations_of(task.spec for task in tasks))
        if contexts:
            parent, links = _parent_and_links(None, contexts)
            start(context=parent, links=links).end()

    def _add_exemplar(self, path: str, span: Span, started_ns: int) -> None:
        found = span.get_span_context()
        if found.trace_flags.sampled:
            now_ns = time.time_ns()
            self._counts.durations(path).add_exemplar(
                (now_ns - started_ns) / 1e9,
                {
                    "trace_id": trace.format_trace_id(found.trace_id),
                    "span_id": trace.format_span_id(found.span_id),
                },
                now_ns / 1e9,
            )

    def _note_puts(self, request: _Request, answer: bytes | None) -> None:
        """Report the sampled tasks of a put."""
        if answer is None:
            return
        created = task_service_pb2.PutTasksResponse.FromString(answer).task_ids
        for spec, task_id in zip(request.specs, created, strict=False):
            context = creation_of(spec)
            if task_id and context is not None and context.trace_flags.sampled:
                self._task_put(request.tube, task_id, context)


def _first(contexts: Iterable[SpanContext]) -> Sequence[SpanContext]:
    """Return the distinct contexts, at most ``LINKS_MAX``."""
    found = {(one.trace_id, one.span_id): one for one in contexts}
    return list(found.values())[:LINKS_MAX]


def _parent_and_links(
    caller: SpanContext | None, contexts: Sequence[SpanContext]
) -> tuple[Context, Sequence[Link]]:
    parent = caller if caller is not None else contexts[0] if len(contexts) == 1 else None
    links = [Link(one) for one in contexts if one is not parent]
    if parent is None:
        return Context(), links
    return trace.set_span_in_context(NonRecordingSpan(parent), Context()), links


class TracedSubmitter:
    """Creates one span for the way of each command from the proposal until it is applied.

    Args:
        submitter: executes the commands.
        tracer: tracer of the process.
        creations: returns the trace contexts of the tasks of leases.
    """

    def __init__(
        self,
        submitter: CommandSubmitter,
        tracer: trace.Tracer,
        creations: Callable[[Iterable[int]], Sequence[SpanContext]],
    ) -> None:
        self._submitter = submitter
        self._tracer = tracer
        self._creations = creations

    def submit(
        self, encoded: EncodedCommand, deadline: float | None = None
    ) -> asyncio.Future[AppliedCommand]:
        """Execute a command; see ``CommandSubmitter``."""
        span = self._span_of(encoded.command)
        future = self._submitter.submit(encoded, deadline)
        if span is not None:
            future.add_done_callback(partial(_end, span))
        return future

    def _span_of(self, command: Command) -> Span | None:
        """Start the span of a command; None if neither its call nor its tasks have a trace.

        Settlements of a subscription have no call of their own, so their tasks tell the trace.
        """
        name = f"apply {type(command).__name__}"
        current = trace.get_current_span()
        if current.is_recording():
            return self._tracer.start_span(name)
        if not isinstance(command, Settle) or current.get_span_context().is_valid:
            return None
        contexts = self._creations(token for one in command.settlements for token in one.tokens)
        if not contexts:
            return None
        parent, links = _parent_and_links(None, contexts)
        return self._tracer.start_span(name, context=parent, links=links)

    def wake(self) -> None:
        """Check whether waiting consumers can be served; see ``CommandSubmitter``."""
        self._submitter.wake()


def _end(span: Span, future: asyncio.Future[AppliedCommand]) -> None:
    """End the span of a command whose future is done."""
    failure = None if future.cancelled() else future.exception()
    if future.cancelled() or failure is not None:
        span.set_status(StatusCode.ERROR, type(failure).__name__ if failure else "cancelled")
    else:
        span.set_attribute("taskraft.log_index", future.result().index)
    span.end()
