"""Sample the tubes of this node every 10 seconds, so that trends exist without other systems.

Each node samples the state that it has applied. Nothing is replicated. A restarted node reads the
samples before its start from another node, see ``cluster.past_samples``. A sample of 10 000 tubes
takes some milliseconds; see ``bench``.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.sample_rings import TOTAL, SampleRing, TubeSample, percentile
from taskraft_service.machine.task_distributions import TaskDistributions
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.task_state import BURIED, READY, TAKEN
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.feed.chunk import Event, events_of
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.tube_statistics import TubeStatistics

FINE_MS: Final = 10_000
FINE_SAMPLES: Final = 360
COARSE_EVERY: Final = 12
"""Number of fine samples in a coarse one."""
COARSE_SAMPLES: Final = 720
TUBES_MAX: Final = 200
"""Maximum number of tubes with samples of their own: the tubes that were active last."""
SLICE_TUBES: Final = 50
"""Number of tubes that are sampled in one step."""
SLICE_NAMES: Final = 2_000
"""Number of tubes that are searched for changes since the last sample in one step."""
EVENTS_MAX: Final = 1_024
"""Maximum number of events per sample from which waits and runs are computed."""

_Times = dict[str, tuple[list[int], list[int]]]
"""Waits and runs in ms, by tube; of all tubes under ``TOTAL``."""


class TubeSampler:
    """Takes the samples and keeps them.

    Args:
        queues: the queues of this node.
        wall_now_ms: returns the wall time of the cluster.
    """

    def __init__(self, queues: QueueLocator, wall_now_ms: Callable[[], int]) -> None:
        self._queues = queues
        self._wall_now_ms = wall_now_ms
        self.rings: Final = {
            FINE_MS: SampleRing(FINE_MS, FINE_SAMPLES),
            FINE_MS * COARSE_EVERY: SampleRing(FINE_MS * COARSE_EVERY, COARSE_SAMPLES),
        }
        """The rings by their distance between two samples."""
        self.distributions: Final = TaskDistributions()
        self._index: int | None = None
        """The last applied entry at the last sample; None: there was no sample."""
        self._queue: weakref.ref[Queue] | None = None
        """The replicated queue at the last sample; installing a snapshot replaces the queue."""
        self._operations: dict[str, int] = {}
        """Number of operations on each temporary tube at the last sample."""
        self._active: OrderedDict[str, None] = OrderedDict()
        """The tubes with samples of their own, the most recently active last."""
        self._counts: dict[str, Sequence[int]] = {}
        """Counts of operations at the last sample, by sampled tube."""
        self._read_seqs: dict[int, int] = {}
        """Sequence number of the next event to read, by partition of the feed."""
        self._taken = 0
        self.has_sampled: Final = asyncio.Event()
        """Set after the first sample."""

    async def run_periodically(self) -> None:
        """Take a sample every 10 seconds, until the task is cancelled."""
        while True:
            await asyncio.sleep(FINE_MS / 1_000)
            for _ in self.sample():
                await asyncio.sleep(0)

    def sample(self) -> Iterator[None]:
        """Take one sample in steps; the event loop can run other work after each step."""
        yield from self._choose_tubes()
        times: _Times = {}
        for event in self._new_events():
            _note_times(times, event)
            self.distributions.add(event)
        yield
        at_ms = self._wall_now_ms()
        samples = {TOTAL: self._sample_of(self._queues.total_statistics(None), at_ms, times)}
        names = list(self._active)
        for first in range(0, len(names), SLICE_TUBES):
            for counts in self._queues.statistics(names[first : first + SLICE_TUBES]):
                samples[counts.tube] = self._sample_of(counts, at_ms, times)
            yield
        fine, coarse = self.rings.values()
        fine.add(at_ms, samples)
        self._taken += 1
        if self._taken % COARSE_EVERY == 0:
            summaries = {name: fine.summary(name, COARSE_EVERY) for name in samples}
            coarse.add(at_ms, {name: one for name, one in summaries.items() if one is not None})
        self.has_sampled.set()

    # ---------------------------------------------------------------------------- before the start

    def sampled_tubes(self) -> Sequence[str]:
        """Return the tubes with samples of their own."""
        return list(self._active)

    def surplus_tubes(self) -> Sequence[str]:
        """Return all tubes if there are more than can have samples; otherwise none."""
        names = self._queues.tube_names()
        return names if len(names) > TUBES_MAX else ()

    def activate(self, names: Sequence[str]) -> None:
        """Give samples to the tubes that have samples on another node, instead of to others."""
        replicated = self._queues.replicated
        temporary = set(replicated.temporary_tubes())
        known = (name for name in names if replicated.tube_number(name) is not None)
        self._activate(name for name in known if name not in temporary)
        self._forget_surplus()

    def begin_past(self, step_ms: int, at_ms: Sequence[int]) -> None:
        """Set the instants of samples before the start of this node; see ``SampleRing``."""
        self.rings[step_ms].begin_past(at_ms)

    def fill_past(
        self, step_ms: int, name: str, at_ms: Sequence[int], columns: Mapping[str, Sequence[int]]
    ) -> None:
        """Set the numbers of a tube before the start, unless the tube has no samples any more."""
        if name == TOTAL or name in self._active:
            self.rings[step_ms].fill_past(name, at_ms, columns)

    # ----------------------------------------------------------------------------- which tubes

    def _choose_tubes(self) -> Iterator[None]:
        """Give samples to the tubes that changed since the last sample, in steps.

        At the first sample, tubes with operations count as changed. After a snapshot was installed,
        no tube counts as changed, because a new queue does not know which tubes changed. The counts
        of that sample are gaps, because the node has not seen when they grew.
        """
        replicated = self._queues.replicated
        index, self._index = self._index, replicated.applied_index
        is_installed = self._queue is not None and self._queue() is not replicated
        self._queue = weakref.ref(replicated)
        if is_installed:
            self._counts.clear()
        names = replicated.tube_names()
        changed: list[str] = []
        for first in range(0, len(names), SLICE_NAMES):
            part = names[first : first + SLICE_NAMES]
            if index is None:
                totals = self._queues.operation_totals(part)
                changed += [name for name in part if totals.get(name)]
            elif not is_installed:
                found = replicated.changed_since(part, index)
                changed += [name for name in part if name in found]
            yield
        self._activate(changed[-TUBES_MAX:])
        # The numbers of entries do not apply to temporary tubes.
        before = self._operations
        self._operations = self._queues.operation_totals(list(replicated.temporary_tubes()))
        self._activate(
            name for name, count in self._operations.items() if count != before.get(name, 0)
        )
        for name in [name for name in self._active if replicated.tube_number(name) is None]:
            self._forget(name)
        self._forget_surplus()

    def _forget_surplus(self) -> None:
        while len(self._active) > TUBES_MAX:
            self._forget(next(iter(self._active)))

    def _activate(self, names: Iterable[str]) -> None:
        """Count tubes as the most recently active ones."""
        for name in names:
            self._active[name] = None
            self._active.move_to_end(name)

    def _forget(self, name: str) -> None:
        del self._active[name]
        self._counts.pop(name, None)
        self.distributions.forget(name)
        for ring in self.rings.values():
            ring.forget(name)

    # ----------------------------------------------------------------------------- the numbers

    def _sample_of(self, counts: TubeStatistics, at_ms: int, times: _Times) -> TubeSample:
        calls = counts.calls.by_kind
        now = (
            calls[EventKind.PUT],
            calls[EventKind.TAKE],
            calls[EventKind.ACK],
            counts.calls.noted[CountedOperation.FAIL],
            calls[EventKind.TTL_EXPIRED],
        )
        before = self._counts.get(counts.tube)
        self._counts[counts.tube] = now
        # The counts of a dropped tube leave the total, so the total can decrease.
        grown: Sequence[int | None] = (
            (None,) * len(now)
            if before is None
            else [max(new - old, 0) for new, old in zip(now, before, strict=True)]
        )
        wall_ms = self._queues.replicated.wall_offset_ms
        since_ms = counts.oldest_ready_ms
        waits, runs = times.get(counts.tube, ([], []))
        waits.sort()
        runs.sort()
        gauges = (
            counts.states[READY],
            counts.states[TAKEN],
            counts.states[BURIED],
            max(at_ms - since_ms - wall_ms, 0) if since_ms else 0,
            percentile(waits, 50),
            percentile(waits, 95),
            percentile(runs, 50),
            percentile(runs, 95),
        )
        return TubeSample._make((*grown, *gauges))

    def _new_events(self) -> Iterator[Event]:
        """Yield the newest events of each partition, at most ``EVENTS_MAX`` in all."""
        feed = self._queues.replicated.feed
        views = feed.views()
        share = EVENTS_MAX // max(len(views), 1)
        for view in views:
            read = self._read_seqs.get(view.partition, view.high_seq)
            first = max(read, view.high_seq - share, view.low_seq)
            for chunk in feed.read(view.partition, first, view.high_seq, share):
                yield from events_of(chunk.columns)
            self._read_seqs[view.partition] = view.high_seq


def _note_times(times: _Times, event: Event) -> None:
    """Add the wait of a take, or the run of a lease that has ended."""
    if event.from_state == event.to_state or event.from_state not in (READY, TAKEN):
        return
    if event.from_state == READY and event.to_state != TAKEN:
        return
    place = 0 if event.from_state == READY else 1
    for name in (TOTAL, event.tube):
        times.setdefault(name, ([], []))[place].append(max(event.at_ms - event.since_ms, 0))
