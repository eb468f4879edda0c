"""Handle GetStatistics: the counts of tubes, by name, by rank, or only of changed tubes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from typing import Final

from taskraft.v1 import tube_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.access.permissions import ALL_TUBES, Verb
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.paging import list_fingerprint, page_of
from taskraft_service.api.rpc.violations import Violations, check_page_request
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tubes.answers import statistics_message, total_message
from taskraft_service.api.tubes.readable_tubes import readable_tubes
from taskraft_service.leader.unlogged_calls import UnloggedCalls
from taskraft_service.leader.waiters import Waiters
from taskraft_service.limits import PAGE_SIZE_MAX
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.task_state import BURIED, READY
from taskraft_service.turns import next_turn

TUBES_FIELD: Final = pb.GetStatisticsResponse.TUBES_FIELD_NUMBER
STATISTICS_STEPS: Final = 100
"""Number of steps that stand for the statistics of one tube."""
RANK_STEPS: Final = 4
"""Number of steps that stand for the rank of one tube, or for whether the tube has changed."""
TOTAL_SLICE: Final = 500
"""Number of tubes whose statistics are added in one turn of the event loop."""

Order = pb.GetStatisticsRequest.OrderBy
Ranks = Callable[[QueueLocator, Sequence[str]], Mapping[str, int]]
"""Returns the numbers by which some tubes are ordered, the least first; tubes without a number are
left out."""


def _most(state: int) -> Ranks:
    """Return the ranks by the number of tasks in a state, the most first."""

    def ranks(queues: QueueLocator, names: Sequence[str]) -> Mapping[str, int]:
        counts = queues.state_counts(names, state)
        return {name: -count for name, count in counts.items() if count}

    return ranks


RANKS: Final[Mapping[int, Ranks]] = {
    Order.READY: _most(READY),
    Order.BURIED: _most(BURIED),
    Order.OLDEST_READY: QueueLocator.oldest_ready_ms,
}


class StatisticsHandler:
    """The handler of GetStatistics.

    Args:
        reader: reads the queue.
        waiters: the waiting consumers of this node.
        unlogged_calls: the calls that are not counted in the state yet.
    """

    def __init__(
        self, reader: QueueReader, waiters: Waiters, unlogged_calls: UnloggedCalls
    ) -> None:
        self._reader = reader
        self._waiters = waiters
        self._unlogged_calls = unlogged_calls

    def method(self) -> AnyUnaryMethod:
        """Return the method GetStatistics with its handler."""
        return UnaryMethod(
            "GetStatistics",
            pb.GetStatisticsRequest,
            ExecutionSite.BY_CONSISTENCY,
            self.get_statistics,
            lambda request: self._reader.is_local(request.consistency),
        )

    async def get_statistics(self, call: UnaryCall[pb.GetStatisticsRequest]) -> bytes:
        """Return the statistics of a page of tubes, and the sum over all selected tubes.

        Entries may be applied between the slices of a long answer, which is encoded in slices.

        Raises:
            CallRefused: INVALID_FIELD, TOO_MANY_STEPS.
            NotProposed: a selected tube is temporary, and only the leader holds its tasks.
        """
        request = call.request
        check_page_request(request, "tubes", request.tubes)
        _check(request)
        queue = await self._reader.queue(request.consistency)
        revision = queue.applied_index
        names = await readable_tubes(queue, request.tubes, call.caller, call.steps)
        self._reader.check_holds(names)
        page, next_token = await self._page(call, names)
        found = await call.steps.in_slices(
            page, lambda name: self._encoded(name, request), STATISTICS_STEPS
        )
        is_whole = not request.tubes and call.caller.may(Verb.READ, ALL_TUBES)
        answer = pb.GetStatisticsResponse(
            total=await self._total(None if is_whole else names, transitions=request.transitions),
            now_ms=self._reader.wall_now_ms(),
            revision=revision,
            next_page_token=next_token,
            tube_count=len(names),
        )
        return answer.SerializeToString() + b"".join(found)

    async def _page(
        self, call: UnaryCall[pb.GetStatisticsRequest], names: Sequence[str]
    ) -> tuple[Sequence[str], str]:
        """Return the tubes of the page in order, and the token of the next page."""
        request, queues = call.request, self._reader.queues
        size = request.page_size or PAGE_SIZE_MAX
        since = request.changed_since_revision
        if request.order_by:
            ranks: dict[str, int] = {}
            async for part in call.steps.slices(names, RANK_STEPS):
                ranks |= RANKS[request.order_by](queues, part)
            # Equal tubes are in the order of their names.
            return nsmallest(size, ranks, key=ranks.__getitem__), ""
        if since:
            changed: list[str] = []
            async for part in call.steps.slices(names, RANK_STEPS):
                changed += queues.changed_since(part, since)
            names = changed
        mark = list_fingerprint("statistics", str(since), *request.tubes)
        return page_of(names, lambda name: name, size, request.page_token, mark)

    def _encoded(self, name: str, request: pb.GetStatisticsRequest) -> bytes:
        """Return the encoded statistics of a tube; empty if the tube was dropped."""
        encoded = b""
        for counts in self._reader.queues.statistics((name,)):
            one = statistics_message(
                counts,
                self._waiters.waiting_count(name),
                self._reader.wall_offset_ms,
                transitions=request.transitions,
                brief=request.brief,
            )
            if not request.brief:
                self._unlogged_calls.add_to(one, (one.tube,))
            encoded += wire.length_delimited(TUBES_FIELD, one.SerializeToString())
        return encoded

    async def _total(self, names: Sequence[str] | None, *, transitions: bool) -> pb.TubeStatistics:
        """Return the sum over some tubes; None means all tubes, from the running totals."""
        queues = self._reader.queues
        first = None if names is None else names[:TOTAL_SLICE]
        counts = queues.total_statistics(first)
        for start in range(TOTAL_SLICE, len(names or ()), TOTAL_SLICE):
            await next_turn()
            more = (names or ())[start : start + TOTAL_SLICE]
            counts = counts.plus(queues.total_statistics(more))
        known = self._reader.applied.tube_number
        waited_on = self._waiters.tubes_with_consumers() if names is None else names
        noted = self._unlogged_calls.tubes() if names is None else names
        waiting = sum(
            self._waiters.waiting_count(name) for name in waited_on if known(name) is not None
        )
        offset_ms = self._reader.wall_offset_ms
        total = total_message(counts, waiting, offset_ms, transitions=transitions)
        self._unlogged_calls.add_to(total, [name for name in noted if known(name) is not None])
        return total


def _check(request: pb.GetStatisticsRequest) -> None:
    """Check the order and the revision; ``check_page_request`` checks the other fields."""
    violations = Violations()
    violations.check_choice("order_by", request.order_by, Order.values())
    violations.check_not_negative("changed_since_revision", request.changed_since_revision)
    if request.order_by and request.changed_since_revision:
        violations.add("changed_since_revision", "excludes order_by")
    if request.order_by and request.page_token:
        violations.add("page_token", "an order other than by name has one page")
    violations.raise_if_any()
