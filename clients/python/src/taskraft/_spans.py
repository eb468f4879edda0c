"""Create the spans of put, take, processing and settling; imported only if tracing is on.

Source: OpenTelemetry semantic conventions for messaging, version 1.37 (status: development). This
module defines all attribute names.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from taskraft import _answering_node, errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from opentelemetry.context import Context

    from taskraft._task import Task
    from taskraft.v1 import task_pb2, task_service_pb2

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.37.0"
W3C: Final = TraceContextTextMapPropagator()
LINKS_MAX: Final = 128
"""Maximum number of links per span, as in the SDK; further tasks of a batch are counted but not
linked."""

TRACEPARENT: Final = "traceparent"
"""Header with the trace context; "tracestate" belongs to it."""
SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGE_ID: Final = "messaging.message.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
CLIENT_ID: Final = "messaging.client.id"
BODY_SIZE: Final = "messaging.message.body.size"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
ATTEMPT: Final = "messaging.taskraft.attempt"
WAIT_MS: Final = "messaging.taskraft.wait_ms"
LEASE: Final = "messaging.taskraft.lease_token"


class ClientSpans:
    """Creates the spans of one client."""

    def __init__(
        self, provider: trace.TracerProvider, client_id: str, *, is_parent: bool = False
    ) -> None:
        """Store where the spans go.

        Args:
            provider: tracer provider of the process.
            client_id: name of the client.
            is_parent: True: the span of the put is the parent of the processing span. False: the
                spans are linked.
        """
        self._tracer = provider.get_tracer("taskraft", schema_url=SCHEMA_URL)
        self._client_id = client_id
        self._is_parent = is_parent
        self._drops_roots = _drops_roots(provider)

    def _is_off(self) -> bool:
        """Return whether a span that begins here would be neither recorded nor propagated."""
        return self._drops_roots and not trace.get_current_span().get_span_context().is_valid

    def send(
        self,
        tube: str,
        specs: Sequence[task_pb2.TaskSpec],
        parent: Context | None = None,
        *,
        joins_trace: bool = True,
    ) -> AbstractContextManager[list[int]]:
        """Trace a put, and write its context into the headers of tasks that have none.

        Args:
            tube: name of the tube.
            specs: tasks to put.
            parent: parent of the span; default: the current span.
            joins_trace: False: the headers stay as they are, so that another process can send an
                identical put.

        Yields:
            A list to which the caller adds the new task ids; a single id becomes an attribute.
        """
        if self._is_off():
            return nullcontext([])
        return self._send(tube, specs, parent, joins_trace=joins_trace)

    @contextmanager
    def _send(
        self,
        tube: str,
        specs: Sequence[task_pb2.TaskSpec],
        parent: Context | None,
        *,
        joins_trace: bool,
    ) -> Iterator[list[int]]:
        attributes = self._attributes(tube, "send", "send")
        if len(specs) == 1:
            attributes[BODY_SIZE] = len(specs[0].payload)
        else:
            attributes[BATCH_COUNT] = len(specs)
        with (
            self._span(f"send {tube}", SpanKind.PRODUCER, attributes, parent=parent) as span,
            _with_server(span),
        ):
            carrier: dict[str, str] = {}
            if joins_trace:
                W3C.inject(carrier)
            for spec in specs:
                if TRACEPARENT not in spec.headers:
                    for name, value in carrier.items():
                        spec.headers[name] = value.encode()
            task_ids: list[int] = []
            yield task_ids
            if len(specs) == 1 and task_ids:
                span.set_attribute(MESSAGE_ID, str(task_ids[0]))

    def received(self, messages: Sequence[task_pb2.Task], started_ns: int, address: str) -> None:
        """Trace the tasks received from a node, with one span per tube that has tasks."""
        if self._is_off():
            return
        by_tube: dict[str, list[task_pb2.Task]] = {}
        for message in messages:
            by_tube.setdefault(message.tube, []).append(message)
        for tube, tasks in by_tube.items():
            attributes = self._attributes(tube, "receive", "receive")
            attributes[BATCH_COUNT] = len(tasks)
            if len(tasks) == 1:
                attributes[MESSAGE_ID] = str(tasks[0].id)
            attributes |= _server(address)
            span = self._tracer.start_span(
                f"receive {tube}",
                kind=SpanKind.CLIENT,
                attributes=attributes,
                links=[link for task in tasks[:LINKS_MAX] for link in _links(task)],
                start_time=started_ns,
            )
            span.end(max(started_ns, time.time_ns()))

    def process(self, task: Task) -> AbstractContextManager[None]:
        """Trace the processing of a task, linked to the put."""
        if self._is_off() and not (self._is_parent and TRACEPARENT in task.message.spec.headers):
            return nullcontext()
        return self._process(task)

    @contextmanager
    def _process(self, task: Task) -> Iterator[None]:
        message = task.message
        attributes = self._attributes(task.tube, "process", "process") | {
            MESSAGE_ID: str(task.id),
            BODY_SIZE: len(task.payload),
            ATTEMPT: task.attempt,
            LEASE: str(task.token),
            WAIT_MS: max(message.since_ms - message.created_ms, 0),
        }
        creation = _creation(message)
        parent = creation if self._is_parent else None
        with self._span(
            f"process {task.tube}", SpanKind.CONSUMER, attributes, _links(message), parent
        ):
            yield

    def process_many(self, tasks: Sequence[Task]) -> AbstractContextManager[None]:
        """Trace the processing of tasks of one tube together, linked to their puts."""
        return nullcontext() if self._is_off() else self._process_many(tasks)

    @contextmanager
    def _process_many(self, tasks: Sequence[Task]) -> Iterator[None]:
        tube = tasks[0].tube
        attributes = self._attributes(tube, "process", "process") | {BATCH_COUNT: len(tasks)}
        links = [link for task in tasks[:LINKS_MAX] for link in _links(task.message)]
        with self._span(f"process {tube}", SpanKind.CONSUMER, attributes, links):
            yield

    def settle(
        self, operation: str, tasks: Sequence[Task], parent: Context | None = None
    ) -> AbstractContextManager[None]:
        """Trace a settlement; `operation` is ack, release, bury, reject or touch."""
        if not tasks or self._is_off():
            return nullcontext()
        return self._settle(operation, tasks, parent)

    @contextmanager
    def _settle(
        self, operation: str, tasks: Sequence[Task], parent: Context | None
    ) -> Iterator[None]:
        tubes = {task.tube for task in tasks}
        tube = tubes.pop() if len(tubes) == 1 else ""
        attributes = self._attributes(tube, operation, "settle")
        if len(tasks) == 1:
            attributes[MESSAGE_ID] = str(tasks[0].id)
        else:
            attributes[BATCH_COUNT] = len(tasks)
        links = [link for task in tasks[:LINKS_MAX] for link in _links(task.message)]
        name = f"{operation} {tube}".rstrip()
        with (
            self._span(name, SpanKind.CLIENT, attributes, links, parent) as span,
            _with_server(span),
        ):
            yield

    @contextmanager
    def batch(
        self,
        puts: Iterable[task_service_pb2.PutTasksRequest],
        settled: Iterable[tuple[str, Task]],
        *,
        joins_trace: bool = True,
    ) -> Iterator[list[list[int]]]:
        """Trace a batch with one span per put and one per settled lease, as siblings.

        Args:
            puts: puts of the batch.
            settled: action and task of each settlement.
            joins_trace: as for `send`.

        Yields:
            One list per put, to which the caller adds the new task ids.
        """
        here = otel_context.get_current()
        with ExitStack() as stack:
            task_ids = [
                stack.enter_context(self.send(each.tube, each.tasks, here, joins_trace=joins_trace))
                for each in puts
            ]
            for operation, task in settled:
                stack.enter_context(self.settle(operation, [task], here))
            yield task_ids

    def _attributes(self, tube: str, name: str, kind: str) -> dict[str, str | int]:
        attributes: dict[str, str | int] = {
            SYSTEM: "taskraft",
            OPERATION_NAME: name,
            OPERATION_TYPE: kind,
            CLIENT_ID: self._client_id,
        }
        if tube:
            attributes[DESTINATION] = tube
        return attributes

    @contextmanager
    def _span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, str | int],
        links: Sequence[Link] = (),
        parent: Context | None = None,
    ) -> Iterator[trace.Span]:
        """Run a block in a span; a failure sets `error.type` to its stable reason."""
        with self._tracer.start_as_current_span(
            name,
            context=parent,
            kind=kind,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute(ERROR_TYPE, _error_type(error))
                span.set_status(Status(StatusCode.ERROR, str(error)))
                raise


def _drops_roots(provider: trace.TracerProvider) -> bool:
    """Return whether a provider of the SDK drops each span that has no parent."""
    sampler = getattr(provider, "sampler", None)
    described = "" if sampler is None else sampler.get_description()
    return described.removeprefix("ParentBased{root:").startswith("AlwaysOffSampler")


@contextmanager
def _with_server(span: trace.Span) -> Iterator[None]:
    """Store the node that answered the calls of a block; nested spans share the node."""
    node = _answering_node.current() or _answering_node.AnsweringNode()
    try:
        with _answering_node.reported_to(node):
            yield
    finally:
        span.set_attributes(_server(node.address))


def _server(address: str) -> dict[str, str | int]:
    """Return the attributes of the node at an address, "host:port"; empty: no node was called."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return {}
    return {SERVER_ADDRESS: host.strip("[]"), SERVER_PORT: int(port)}


def _creation(message: task_pb2.Task) -> Context | None:
    """Return the trace context in the headers of a task; None if there is none."""
    headers = message.spec.headers
    if TRACEPARENT not in headers:
        return None
    carrier = {
        name: headers[name].decode("ascii", "replace")
        for name in (TRACEPARENT, "tracestate")
        if name in headers
    }
    return W3C.extract(carrier, context=otel_context.Context())


def _links(message: task_pb2.Task) -> list[Link]:
    creation = _creation(message)
    if creation is None:
        return []
    context = trace.get_current_span(creation).get_span_context()
    return [Link(context)] if context.is_valid else []


def _error_type(error: BaseException) -> str:
    return error.reason if isinstance(error, errors.TaskraftError) else type(error).__qualname__
