"""Connect the spans of a node with its calls, its commands and its change feed."""

from __future__ import annotations

from opentelemetry import trace

from taskraft_service.leader.command_submitter import CommandSubmitter
from taskraft_service.process.components import NodeComponents
from taskraft_service.process.spans.call_spans import SCHEMA_URL, CallSpans, TracedSubmitter
from taskraft_service.process.spans.task_spans import TaskSpans
from taskraft_service.queue.entities.task_view import TaskView


class NodeSpans:
    """The spans of one node; its objects are built once tracing is on.

    Args:
        components: the components of the node.
    """

    def __init__(self, components: NodeComponents) -> None:
        self._tracer = trace.get_tracer("taskraft-server", schema_url=SCHEMA_URL)
        self._machine = machine = components.machine
        self.tasks = TaskSpans(self._tracer, lambda: machine.queue.feed)
        self.calls = CallSpans(
            self._tracer,
            self._lease,
            components.endpoint.counts,
            self.tasks.task_put,
        )

    def _lease(self, token: int) -> TaskView | None:
        """Return the task of a lease; the queue is another one after a snapshot."""
        return self._machine.queue.lease(token)

    def submitter(self, submitter: CommandSubmitter) -> CommandSubmitter:
        """Return a submitter that traces each command of a traced call."""
        return TracedSubmitter(submitter, self._tracer, self.calls.creations)
