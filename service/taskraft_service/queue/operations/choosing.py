"""Select the tasks of a take from one or more tubes, by urgency or by weights.

A selected task is removed from its ready order; leasing it is the next step. Tasks of tubes with a
concurrency or rate limit are selected in rounds. Each round takes at most the smallest number of
tasks that any of these tubes allows, so no tube exceeds its limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from taskraft_service.queue.entities.ready_tasks import Offers, ReadyOrder
from taskraft_service.queue.entities.task_state import READY
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.operations.candidates import (
    Candidates,
    OfTypes,
    ScanBudget,
    Urgent,
    WeightedCandidates,
    expire,
)
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.ordered_index import OrderKey


class Choice(Protocol):
    """Selects the most urgent tasks of some tubes."""

    def __call__(
        self,
        tubes: Sequence[QueueTube],
        room: int,
        bytes_max: int,
        has_some: bool,  # noqa: FBT001 - all arguments are passed by position
        /,
    ) -> list[QueueTask]:
        """Return up to ``room`` tasks with at most ``bytes_max`` bytes in total.

        The first task may exceed ``bytes_max``, unless ``has_some`` says that the take already has
        a task.
        """


def open_tubes(
    tubes: Sequence[QueueTube], now_ms: int
) -> tuple[Sequence[QueueTube], Mapping[int, int]]:
    """Return the tubes that allow a take now, and the number of tasks that limited tubes allow."""
    for tube in tubes:
        if tube.has_limits:
            break
    else:
        return tubes, {}
    opened: list[QueueTube] = []
    allowed: dict[int, int] = {}
    for tube in tubes:
        takeable = tube.takeable(now_ms)
        if takeable is not None:
            if takeable <= 0:
                continue
            allowed[tube.number] = takeable
        opened.append(tube)
    return opened, allowed


def choose_within(
    tubes: Sequence[QueueTube],
    allowed: Mapping[int, int],
    room: int,
    bytes_max: int,
    choice: Choice,
) -> list[QueueTask]:
    """Select tasks of tubes with limits."""
    left = dict(allowed)
    chosen: list[QueueTask] = []
    while tubes and room > 0:
        wanted = min(room, *left.values()) if left else room
        found = choice(tubes, wanted, bytes_max, bool(chosen))
        chosen += found
        if len(found) < wanted:
            break
        room -= wanted
        for task in found:
            bytes_max -= task.payload_bytes
            if task.tube.number in left:
                left[task.tube.number] -= 1
        tubes = [tube for tube in tubes if left.get(tube.number, 1) > 0]
        left = {number: count for number, count in left.items() if count > 0}
    return chosen


ANY_BYTES: Final = 1 << 62


class TakeCriteria(Protocol):
    """The fields of a take that decide which tasks are selected."""

    @property
    def tubes(self) -> Sequence[str]:
        """Names of the tubes, in the order of the request."""

    @property
    def types(self) -> Sequence[str]:
        """Accepted types of tasks; empty: all types."""

    @property
    def priority_bound(self) -> int | None:
        """Least urgent accepted priority; None: all priorities."""

    @property
    def weights(self) -> Sequence[int]:
        """Weights of the tubes; empty: the most urgent task of all tubes is next."""


def choose(
    state: QueueState,
    command: TakeCriteria,
    budget: ScanBudget,
    tubes: Sequence[QueueTube],
    room: int,
    bytes_max: int,
    has_some: bool = False,  # noqa: FBT001, FBT002 - see ``Choice``
) -> list[QueueTask]:
    """Select up to ``room`` tasks with at most ``bytes_max`` bytes in total.

    The first task may exceed ``bytes_max``, unless ``has_some`` says that the take already has a
    task. ``budget`` limits the number of skipped tasks and records whether the limit ended the
    scan.
    """
    is_filtered = bool(command.types) or command.priority_bound is not None
    if len(tubes) == 1 and not is_filtered:
        return _first_of_one(state, tubes[0], room, bytes_max, has_some=has_some)
    tasks: list[QueueTask] = []
    candidates = _candidates(state, command, budget, tubes)
    while len(tasks) < room and (task := candidates.first()) is not None:
        bytes_max -= task.payload_bytes
        if bytes_max < 0 and (tasks or has_some):
            break
        task.tube.ready.claim(task, state.now_ms)
        candidates.proceed()
        tasks.append(task)
    if command.priority_bound is not None:
        candidates.end()
    return tasks


def choose_living(state: QueueState, tube: QueueTube, room: int) -> list[QueueTask]:
    """Select up to ``room`` tasks of a tube; stop at a task whose time to live is over."""
    return _first_of_one(state, tube, room, ANY_BYTES, has_some=False, ends_expired=False)


def _first_of_one(
    state: QueueState,
    tube: QueueTube,
    room: int,
    bytes_max: int,
    *,
    has_some: bool,
    ends_expired: bool = True,
) -> list[QueueTask]:
    """Select the first tasks of one tube.

    This function is on the hot path of consumers.

    If ``ends_expired`` is False, stop at a task whose time to live is over.
    """
    now_ms = state.now_ms
    ready, resident = tube.ready, tube.tasks
    counts_claims = ready.counts_claims
    tasks: list[QueueTask] = []
    while len(tasks) < room and (entries := ready.pop_many(room - len(tasks))):
        run: list[QueueTask] = []
        expired: QueueTask | None = None
        for place, entry in enumerate(entries):
            task = resident.get(entry[-1]) or state.soon_needed(tube, ready, entries[place:])
            assert task.state is READY
            if task.expire_at_ms <= now_ms:
                expired = task
                break
            bytes_max -= task.payload_bytes
            if bytes_max < 0 and (run or tasks or has_some):
                break
            run.append(task)
        if counts_claims:
            ready.claim_withdrawn(run, now_ms)
        tasks += run
        rest = entries[len(run) :]
        if expired is not None and ends_expired:
            # The next task of the sub-queue may be more urgent than the other candidates.
            _restore(ready, rest[1:])
            expire(state, expired)
        elif rest:
            _restore(ready, rest)
            break
    return tasks


def _restore(ready: ReadyOrder[QueueTask], entries: Sequence[OrderKey]) -> None:
    """Return withdrawn entries to the order."""
    for entry in reversed(entries):
        ready.restore(entry)


def _candidates(
    state: QueueState, command: TakeCriteria, budget: ScanBudget, tubes: Sequence[QueueTube]
) -> Candidates:
    """Return the candidates of the tubes, by urgency or by the weights of the tubes."""
    offers = [_offers(state, command, budget, tube) for tube in tubes]
    if len(tubes) < 2 or not command.weights:
        return Candidates(state, tubes, offers)
    weights: dict[str, int] = {}
    for name, weight in zip(command.tubes, command.weights, strict=True):
        weights.setdefault(name, weight)
    return WeightedCandidates(state, tubes, offers, [weights[tube.name] or 1 for tube in tubes])


def _offers(
    state: QueueState, command: TakeCriteria, budget: ScanBudget, tube: QueueTube
) -> Offers:
    """Return the tasks that a tube offers to a take."""
    offers: Offers = tube.ready
    if command.types:
        offers = OfTypes(tube.ready.types.ask(command.types))
        state.tubes.touch(tube)  # the next ``collect`` drops the opened sub-queues from memory
    if command.priority_bound is None:
        return offers
    rank_max = tube.rank(command.priority_bound)
    if not tube.driver:
        suits, goes_by_rank = partial(_has_rank, rank_max), not tube.options.subqueue_weights
    else:
        suits, goes_by_rank = partial(_is_urgent, state, tube, rank_max), False
    return Urgent(
        offers,
        suits,
        goes_by_rank=goes_by_rank,
        has_back=tube.lane_max > 0,
        may_pass=partial(budget.try_skip, tube.number),
    )


def _has_rank(rank_max: int, entry: OrderKey) -> bool:
    """Return whether an entry is urgent enough, in an order where the rank is the priority."""
    return entry[1] <= rank_max


def _is_urgent(state: QueueState, tube: QueueTube, rank_max: int, entry: OrderKey) -> bool:
    """Return whether a task that a driver has ordered is urgent enough."""
    task = state.find(tube, entry[-1])
    assert task is not None, f"tube {tube.number} has no task {entry[-1]}"
    return tube.rank(task.priority) <= rank_max
