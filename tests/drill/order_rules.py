"""Rules for whole tubes: the order of takes, empty answers and peeks.

A take with an unknown outcome may have leased any READY task and then let the lease expire. Each
rule therefore counts the tasks that such takes can explain, and reports a violation only if more
tasks were passed over. Puts of unknown outcome with one content can be indistinguishable, and then
the priority or the sub-queue of their tasks is unknown. No order holds for these tasks.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from typing import NamedTuple

from sortedcontainers import SortedList

from tests.drill.history import Operation
from tests.drill.request import Request
from tests.drill.task_history import SECOND_NS, TaskHistories, TaskHistory, Violation

Place = tuple[int, int]
"""Sort key of a task: priority and id."""

LAST: Place = (1 << 63, 0)
"""Sort key after the keys of all tasks."""


class ReadyTime(NamedTuple):
    """An interval in which a task was certainly READY; each take in it must find the task."""

    place: Place
    begun_ns: float
    ended_ns: float
    task: TaskHistory
    subqueue: str


def place_of(histories: TaskHistories, task: TaskHistory) -> Place | None:
    """Return the sort key of a task; None if the priority of the task is unknown."""
    priorities = task.put_values("pri", 0)
    if len(priorities) != 1:
        return None
    sign = -1 if histories.tube(task.tube).get("higher_first") else 1
    return sign * priorities.pop(), task.id


def domain_of(histories: TaskHistories, task: TaskHistory) -> tuple[str, str] | None:
    """Return the tube and the sub-queue of a task; None if the sub-queue is unknown."""
    subqueues = task.put_values("utube", "") if histories.has_subqueues(task.tube) else {""}
    return (task.tube, subqueues.pop()) if len(subqueues) == 1 else None


def _starts(task: TaskHistory) -> Iterator[tuple[float, int]]:
    """Yield each time at which the task was certainly READY, and the highest token given before."""
    puts = [put for put in task.puts if put.is_ok]
    if len(puts) == 1 and len(task.puts) == 1 and not puts[0].value.get("delay"):
        yield puts[0].ended_ns, -1
    for delivery in task.deliveries:
        for one in delivery.ends({"release"}):
            if one.is_ok and not one.value.get("delay") and "position" not in one.value:
                yield one.ended_ns, delivery.token


def ready_times(histories: TaskHistories, task: TaskHistory) -> Iterator[ReadyTime]:
    """Yield the intervals in which a task was certainly READY."""
    place, domain = place_of(histories, task), domain_of(histories, task)
    if place is None or domain is None or any("position" in put.value for put in task.puts):
        return
    for begun_ns, token in _starts(task):
        changes = [one.invoked_ns for one in task.deliveries if one.token > token]
        changes += [
            one.invoked_ns
            for one in task.deletions + task.burials + histories.sweeps_of(task.tube)
            if one.may_have_happened
        ]
        # A settlement with an unknown take, or a removal, ends the interval.
        changes += [one.invoked_ns for one in task.strays if one.may_have_happened]
        ended_ns = min([*changes, histories.lives_until_ns(task)], default=float("inf"))
        if begun_ns < ended_ns:
            yield ReadyTime(place, begun_ns, ended_ns, task, domain[1])


class UnseenTakes:
    """The takes of each tube that may have leased tasks which no answer names."""

    def __init__(self, histories: TaskHistories) -> None:
        self._horizon_ns = histories.config.get("silent_horizon", float("inf")) * SECOND_NS
        self._begun_ns: dict[str, list[float]] = defaultdict(list)
        for take in histories.takes:
            if take.may_have_taken_unseen:
                for tube in tubes_of(take):
                    self._begun_ns[tube].append(take.invoked_ns)
        for begun_ns in self._begun_ns.values():
            begun_ns.sort()

    def count(self, tube: str, invoked_ns: float, ended_ns: float) -> int:
        """Return the maximum number of tasks that unseen takes held at any time of an interval."""
        begun_ns = self._begun_ns.get(tube, [])
        first = bisect_left(begun_ns, invoked_ns - self._horizon_ns)
        return max(0, bisect_right(begun_ns, ended_ns) - first)


def tubes_of(take: Request | Operation) -> list[str]:
    """Return the tubes that a take names."""
    return take.value.get("tubes") or [take.value["tube"]]


class _Sweep:
    """The READY tasks of one tube or sub-queue, as time advances."""

    def __init__(self, times: Iterable[ReadyTime]) -> None:
        self._coming = sorted(times, key=lambda one: one.begun_ns)
        self._next = 0
        self._ready: SortedList = SortedList()
        self._leaving: list[tuple[float, int, ReadyTime]] = []

    def passed_over(self, invoked_ns: float, ended_ns: float, place: Place) -> Iterator[ReadyTime]:
        """Yield the more urgent tasks that were READY during a whole interval.

        ``invoked_ns`` must not decrease from call to call.
        """
        while self._next < len(self._coming) and self._coming[self._next].begun_ns <= invoked_ns:
            one = self._coming[self._next]
            self._ready.add((one.place, self._next, one))
            heapq.heappush(self._leaving, (one.ended_ns, self._next, one))
            self._next += 1
        while self._leaving and self._leaving[0][0] <= invoked_ns:
            _, number, one = heapq.heappop(self._leaving)
            self._ready.remove((one.place, number, one))
        for found, _, one in self._ready:
            if found >= place:
                return
            if one.ended_ns > ended_ns:
                yield one

    def ready_during(self, take: Operation) -> Iterator[ReadyTime]:
        """Yield the tasks that were READY during a whole take; see `passed_over`."""
        return self.passed_over(take.invoked_ns, take.ended_ns, LAST)


def _by_domain(histories: TaskHistories) -> dict[tuple[str, str], list[ReadyTime]]:
    """Group the intervals by tube and sub-queue, because the order holds within each of them."""
    found: dict[tuple[str, str], list[ReadyTime]] = defaultdict(list)
    for task in histories.tasks.values():
        if histories.tube(task.tube).get("ordered", True):
            for one in ready_times(histories, task):
                found[task.tube, one.subqueue].append(one)
    return found


def overtaken_tasks(histories: TaskHistories) -> Iterator[Violation]:
    """G5: a take gets the most urgent READY task of the tube or sub-queue."""
    domains = _by_domain(histories)
    unseen = UnseenTakes(histories)
    takes: dict[tuple[str, str], list[tuple[Place, Request, TaskHistory]]] = defaultdict(list)
    for task in histories.tasks.values():
        place, domain = place_of(histories, task), domain_of(histories, task)
        if place is not None and domain is not None:
            takes[domain] += [
                (place, one.take, task) for one in task.deliveries if "filter" not in one.take.value
            ]
    for key, taken in takes.items():
        sweep = _Sweep(domains.get(key, ()))
        for place, take, task in sorted(taken, key=lambda one: one[1].invoked_ns):
            excused = unseen.count(key[0], take.invoked_ns, take.ended_ns)
            over = sweep.passed_over(take.invoked_ns, take.ended_ns, place)
            passed = list(islice(over, excused + 1))
            if len(passed) > excused:
                text = f"{task.name} was taken before {passed[0].task.name}"
                yield Violation("G5", "fifo", text)


def empty_answers(histories: TaskHistories) -> Iterator[Violation]:
    """G8: a take finds a task that is certainly READY."""
    times: dict[str, list[ReadyTime]] = defaultdict(list)
    for task in histories.tasks.values():
        times[task.tube] += ready_times(histories, task)
    unseen = UnseenTakes(histories)
    holds = SubqueueHolds(histories)
    empties: dict[str, list[Operation]] = defaultdict(list)
    for take in histories.takes:
        single = len(take.attempts) == 1 and take.is_ok and take.answer.get("id") is None
        if single and "filter" not in take.value:
            for tube in tubes_of(take):
                empties[tube].append(take.oks[0])
    for tube, answers in empties.items():
        if histories.config.get("allow_stale_empty"):
            return
        if histories.has_subqueues(tube):
            # One unseen lease blocks all tasks of its sub-queue, so each sub-queue counts once.
            subqueues = ReadySubqueues(times.get(tube, ()), holds)
            ready_during = subqueues.free_during
        else:
            sweep = _Sweep(times.get(tube, ()))
            ready_during = sweep.ready_during
        for take in answers:
            excused = unseen.count(tube, take.invoked_ns, take.ended_ns)
            ready = list(islice(ready_during(take), excused + 1))
            if len(ready) > excused:
                text = f"{take.process} found nothing while {ready[0].task.name} was ready"
                yield Violation("G8", "stale-empty", text)


class SubqueueHolds:
    """The intervals in which a task of each sub-queue may have been leased."""

    def __init__(self, histories: TaskHistories) -> None:
        holds: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for task in histories.tasks.values():
            if histories.has_subqueues(task.tube):
                for held in task.deliveries:
                    ends = [one.ended_ns for one in held.ends() if one.is_ok]
                    ends += [one.ended_ns for one in task.deletions if one.is_ok]
                    ends += [one.ended_ns for one in task.deliveries if one.token > held.token]
                    hold = held.invoked_ns, min(ends, default=float("inf"))
                    for subqueue in task.put_values("utube", ""):
                        holds[task.tube, subqueue].append(hold)
        self._begun_ns = {
            key: [begun for begun, _ in sorted(found)] for key, found in holds.items()
        }
        self._latest_ns = {
            key: list(accumulate((ended for _, ended in sorted(found)), max))
            for key, found in holds.items()
        }
        """For each hold in the order of ``_begun_ns``: the latest end up to this hold."""

    def may_overlap(self, tube: str, subqueue: str, take: Operation) -> bool:
        """Return whether a task of the sub-queue may have been leased during a take."""
        key = tube, subqueue
        begun = bisect_right(self._begun_ns.get(key, ()), take.ended_ns)
        return begun > 0 and self._latest_ns[key][begun - 1] >= take.invoked_ns


class ReadySubqueues:
    """The intervals in which each sub-queue of a tube certainly had a READY task."""

    def __init__(self, times: Iterable[ReadyTime], holds: SubqueueHolds) -> None:
        self._holds = holds
        found: dict[str, list[ReadyTime]] = defaultdict(list)
        for one in sorted(times, key=lambda one: one.begun_ns):
            found[one.subqueue].append(one)
        self._begun_ns = {name: [one.begun_ns for one in ready] for name, ready in found.items()}
        self._latest = {
            name: list(accumulate(ready, lambda one, other: max(one, other, key=_end_of)))
            for name, ready in found.items()
        }
        """For each place of ``_begun_ns``: the last end among the intervals up to the place."""

    def free_during(self, take: Operation) -> Iterator[ReadyTime]:
        """Yield an interval of each sub-queue that had a READY task and no lease during a take."""
        for name, begun_ns in self._begun_ns.items():
            begun = bisect_right(begun_ns, take.invoked_ns)
            if not begun:
                continue
            one = self._latest[name][begun - 1]
            is_held = self._holds.may_overlap(one.task.tube, name, take)
            if one.ended_ns > take.ended_ns and not is_held:
                yield one


def _end_of(one: ReadyTime) -> float:
    return one.ended_ns


def concurrent_subqueues(histories: TaskHistories) -> Iterator[Violation]:
    """G5: at most one task of each sub-queue is leased at a time."""
    groups: dict[tuple[str, str], list[tuple[float, float, TaskHistory]]] = defaultdict(list)
    for task in histories.tasks.values():
        tube = histories.tube(task.tube)
        domain = domain_of(histories, task)
        if histories.has_subqueues(task.tube) and domain and tube.get("concurrency", 1) == 1:
            for held in task.deliveries:
                until_ns = histories.held_until_ns(task, held)
                if held.ended_ns < until_ns:
                    groups[domain].append((held.ended_ns, until_ns, task))
    for (tube, subqueue), holds in groups.items():
        holds.sort(key=lambda one: one[0])
        latest_ns, holder = 0.0, None
        for begun_ns, until_ns, task in holds:
            if holder is not None and begun_ns < latest_ns and task is not holder:
                text = (
                    f"{task.name} and {holder.name} were leased at once in {subqueue!r} of {tube}"
                )
                yield Violation("G5", "utube-concurrent", text)
            if until_ns > latest_ns:
                latest_ns, holder = until_ns, task


def disordered_ids(histories: TaskHistories) -> Iterator[Violation]:
    """G5: a put that began after the end of another put has the greater id."""
    if not histories.config.get("monotonic_ids", True):
        return
    puts: dict[str, list[Request]] = defaultdict(list)
    for put in histories.puts:
        if put.is_ok:
            puts[put.value["tube"]].append(put)
    for tube, found in puts.items():
        ended = sorted(found, key=lambda one: one.ended_ns)
        done, highest = 0, 0
        for put in sorted(found, key=lambda one: one.invoked_ns):
            while done < len(ended) and ended[done].ended_ns < put.invoked_ns:
                highest = max(highest, ended[done].answer["id"])
                done += 1
            if put.answer["id"] < highest:
                text = f"task {put.answer['id']} of {tube} was put after task {highest}"
                yield Violation("G5", "id-order", text)


def stale_peeks(histories: TaskHistories) -> Iterator[Violation]:
    """G8: a peek returns the state that the task certainly had."""
    unseen = UnseenTakes(histories)
    for task in histories.tasks.values():
        for peek in task.peeks:
            if not peek.is_ok:
                continue
            state = peek.answer.get("state")
            window = peek.invoked_ns, peek.ended_ns
            held = any(
                one.ended_ns <= window[0] and window[1] < histories.held_until_ns(task, one)
                for one in task.deliveries
            )
            ready = any(
                one.begun_ns <= window[0] and window[1] < one.ended_ns
                for one in ready_times(histories, task)
            )
            # The lease of an unseen take may have ended since, and the task then waits for a retry.
            is_explained = state in ("t", "~") and unseen.count(task.tube, *window)
            if held and state != "t":
                yield Violation("G8", "stale-read", f"{task.name} was leased; a peek shows {state}")
            elif ready and state != "r" and not is_explained:
                yield Violation("G8", "stale-read", f"{task.name} was ready; a peek shows {state}")
