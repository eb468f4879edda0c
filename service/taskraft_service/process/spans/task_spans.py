"""Create one span for the whole way of each sampled task, with an event for each transition.

The node that received the put of a task follows the task in its own change feed. Nothing is
replicated: a restart of the node loses the spans of the tasks that have not ended.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.feed.change_feed import ChangeFeed
from taskraft_service.queue.feed.chunk import Event, events_of

FOLLOWED_MAX: Final = 10_000
"""Maximum number of followed tasks; a further task replaces the one that was put first."""
EVENTS_OF_TASK_MAX: Final = 100
"""Maximum number of events of a span; the first are kept."""
EVENTS_READ_MAX: Final = 20_000
"""Maximum number of events of a partition that are read in one round; older events are skipped."""
READ_SLICE: Final = 500
"""Number of events that are read in one step of the event loop."""
ROUND_SECONDS: Final = 1.0


@dataclass(slots=True)
class _FollowedTask:
    """A sampled task that has not ended."""

    creation: SpanContext
    events: list[Event] = field(default_factory=list)


class TaskSpans:
    """Follows the sampled tasks that were put through this node.

    Args:
        tracer: tracer of the process.
        feed: returns the change feed of this node.
    """

    def __init__(self, tracer: trace.Tracer, feed: Callable[[], ChangeFeed]) -> None:
        self._tracer = tracer
        self._feed = feed
        self._followed: OrderedDict[tuple[str, int], _FollowedTask] = OrderedDict()
        self._read_seqs = {view.partition: view.high_seq for view in feed().views()}
        """Sequence number of the next event to read, by partition."""

    def task_put(self, tube: str, task_id: int, creation: SpanContext) -> None:
        """Follow a new task."""
        self._followed[tube, task_id] = _FollowedTask(creation)
        if len(self._followed) > FOLLOWED_MAX:
            self._followed.popitem(last=False)

    async def run_periodically(self) -> None:
        """Read the new events each second, until the coroutine is cancelled."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            for _ in self.read():
                await asyncio.sleep(0)

    def read(self) -> Iterator[None]:
        """Read the new events in steps; the event loop can run other work after each step."""
        feed = self._feed()
        for view in feed.views():
            first = self._read_seqs.get(view.partition, view.low_seq)
            first = max(first, view.low_seq, view.high_seq - EVENTS_READ_MAX)
            if not self._followed:
                first = view.high_seq
            while first < view.high_seq:
                until = min(first + READ_SLICE, view.high_seq)
                for chunk in feed.read(view.partition, first, until, READ_SLICE):
                    for event in events_of(chunk.columns):
                        self._note(event)
                first = until
                yield
            self._read_seqs[view.partition] = view.high_seq

    def _note(self, event: Event) -> None:
        key = (event.tube, event.task_id)
        task = self._followed.get(key)
        if task is None:
            return
        if len(task.events) < EVENTS_OF_TASK_MAX:
            task.events.append(event)
        if event.outcome or event.target:  # ended, or moved to another tube
            del self._followed[key]
            self._end(task, event)

    def _end(self, task: _FollowedTask, last: Event) -> None:
        """Export the span of a task that has ended, from its put to its end."""
        parent = trace.set_span_in_context(NonRecordingSpan(task.creation), Context())
        span = self._tracer.start_span(
            f"task {last.tube}",
            context=parent,
            start_time=last.created_ms * 1_000_000,
            attributes={
                "messaging.system": "taskraft",
                "messaging.destination.name": last.tube,
                "messaging.message.id": str(last.task_id),
                "messaging.taskraft.attempt": last.attempt,
                "messaging.taskraft.outcome": TaskOutcome(last.outcome).name,
            },
        )
        for event in task.events:
            span.add_event(
                EventKind(event.kind).name.lower(),
                {
                    "state": State(event.to_state).name,
                    "attempt": event.attempt,
                    "session": event.session,
                    "reason": str(event.reason),
                },
                event.at_ms * 1_000_000,
            )
        span.end(last.at_ms * 1_000_000)
