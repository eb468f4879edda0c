"""Simulate the life of all tasks on a busy day: arrivals, workers, failures, retries and faults.

The simulation is a queue with several workers per tube, first in, first out. Faults are planted at
known places, so that a reader of the history can be checked. Every name and number is invented.
"""

from __future__ import annotations

import heapq
import math
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
START_MS: Final = 1_780_272_000_000
"""Beginning of the day, midnight UTC."""
EVENTS_PER_TASK: Final = 3.2
"""Mean number of events of a task."""
ATTEMPTS_MAX: Final = 4
FIRST_DELAY_MS: Final = 30_000
"""Delay after the first failed attempt; each further failed attempt doubles the delay."""
SICK_FAILURE: Final = 0.5
"""Chance of a failure on a sick worker."""
ENDLESS: Final = -1
"""Value of ``end_ms`` for an attempt that never ends."""


@dataclass(frozen=True, slots=True)
class TubePlan:
    """The work and the planted faults of one tube.

    Attributes:
        tube: name of the tube.
        share: part of all tasks of the day, 0 to 1.
        run_ms: mean time of an attempt.
        failure: chance that an attempt fails, 0 to 1.
        headroom: number of workers divided by the mean number of busy workers.
        subqueues: number of sub-queues; 0: tasks have no sub-queue.
        outage: begin and end of a time in which no worker takes a task, in ms of the day.
        sick_worker: whether the first worker fails often.
        stuck: number of attempts that never end.
    """

    tube: str
    share: float
    run_ms: int
    failure: float
    headroom: float
    subqueues: int = 0
    outage: tuple[int, int] | None = None
    sick_worker: bool = False
    stuck: int = 0


PLANS: Final = (
    TubePlan("mail", 0.42, 900, 0.03, 3.0, sick_worker=True),
    TubePlan("thumbnails", 0.28, 1_600, 0.01, 1.15),
    TubePlan("search", 0.16, 1_100, 0.01, 2.4, subqueues=40),
    TubePlan("billing", 0.12, 1_900, 0.02, 3.0, outage=(14 * HOUR_MS, 14 * HOUR_MS + 2_400_000)),
    TubePlan("reports", 0.02, 9_000, 0.04, 2.5, stuck=7),
)


@dataclass(slots=True)
class AttemptColumns:
    """The attempts of a tube in the order of their starts; times are in ms since the epoch.

    ``end_ms`` is ENDLESS for an attempt that never ends; ``is_failed`` is 0 or 1.
    """

    task: array[int] = field(default_factory=lambda: array("q"))
    attempt: array[int] = field(default_factory=lambda: array("q"))
    ready_ms: array[int] = field(default_factory=lambda: array("q"))
    start_ms: array[int] = field(default_factory=lambda: array("q"))
    end_ms: array[int] = field(default_factory=lambda: array("q"))
    worker: array[int] = field(default_factory=lambda: array("q"))
    is_failed: array[int] = field(default_factory=lambda: array("q"))


@dataclass(frozen=True, slots=True)
class TubeDay:
    """The day of one tube.

    Attributes:
        plan: the plan.
        workers: number of workers.
        put_ms: time of the put of each task, in order.
        subqueue: number of the sub-queue of each task, from 1; 0 without sub-queues.
        attempts: all attempts that begin on the day.
    """

    plan: TubePlan
    workers: int
    put_ms: NDArray[np.int64]
    subqueue: NDArray[np.int64]
    attempts: AttemptColumns


def delay_ms(attempt: int) -> int:
    """Return the delay after a failed attempt; the first attempt is 1."""
    return FIRST_DELAY_MS << (attempt - 1)


def simulate(plan: TubePlan, events: int, seed: int) -> TubeDay:
    """Return the day of a tube; equal arguments give equal days.

    Args:
        plan: the plan of the tube.
        events: approximate number of events of all tubes.
        seed: seed of the random numbers.
    """
    chance = np.random.default_rng([seed, *plan.tube.encode()])
    tasks = max(round(events / EVENTS_PER_TASK * plan.share), 20)
    busy = tasks * plan.run_ms / DAY_MS
    workers = max(math.ceil(busy * plan.headroom), 2)
    put_ms = START_MS + arrivals(tasks, chance)
    return TubeDay(
        plan,
        workers,
        put_ms,
        subqueues(plan.subqueues, tasks, chance),
        attempts(plan, put_ms.tolist(), workers, chance),
    )


def arrivals(tasks: int, chance: np.random.Generator) -> NDArray[np.int64]:
    """Return the ordered times of puts in ms of the day, with a peak in the afternoon."""
    hours = np.arange(1_440) / 60
    weights = 1 + 0.7 * np.sin((hours - 9) / 24 * 2 * np.pi)
    minutes = chance.choice(1_440, size=tasks, p=weights / weights.sum())
    return np.sort(minutes * 60_000 + chance.integers(0, 60_000, tasks))


def subqueues(count: int, tasks: int, chance: np.random.Generator) -> NDArray[np.int64]:
    """Return the number of the sub-queue of each task; the first sub-queue has most tasks."""
    if count == 0:
        return np.zeros(tasks, np.int64)
    weights = 1 / np.arange(1, count + 1) ** 1.2
    return chance.choice(np.arange(1, count + 1), size=tasks, p=weights / weights.sum())


def attempts(
    plan: TubePlan, put_ms: list[int], workers: int, chance: np.random.Generator
) -> AttemptColumns:
    """Return the attempts of the tasks: each free worker takes the task that is READY longest."""
    found = AttemptColumns()
    free = [(START_MS, worker) for worker in range(workers)]
    retries: list[tuple[int, int, int]] = []
    stuck = set(chance.choice(len(put_ms) // 2, plan.stuck, replace=False).tolist())
    runs = np.maximum(chance.exponential(plan.run_ms, 65_536), 1).astype(np.int64).tolist()
    chances = chance.random(65_521).tolist()
    next_put, number = 0, 0
    while next_put < len(put_ms) or retries:
        if retries and (next_put == len(put_ms) or retries[0][0] <= put_ms[next_put]):
            ready_ms, task, attempt = heapq.heappop(retries)
        else:
            ready_ms, task, attempt = put_ms[next_put], next_put, 1
            next_put += 1
        free_ms, worker = free[0]
        start_ms = max(ready_ms, free_ms)
        if plan.outage and plan.outage[0] <= start_ms - START_MS < plan.outage[1]:
            start_ms = START_MS + plan.outage[1]
        end_ms = start_ms + runs[number % 65_536]
        heapq.heapreplace(free, (end_ms, worker))
        is_sick = plan.sick_worker and worker == 0
        failure = SICK_FAILURE if is_sick else plan.failure
        is_failed = chances[number % 65_521] < failure
        number += 1
        if task in stuck:
            end_ms, is_failed = ENDLESS, False
        elif is_failed and attempt < ATTEMPTS_MAX:
            heapq.heappush(retries, (end_ms + delay_ms(attempt), task, attempt + 1))
        found.task.append(task)
        found.attempt.append(attempt)
        found.ready_ms.append(ready_ms)
        found.start_ms.append(start_ms)
        found.end_ms.append(end_ms)
        found.worker.append(worker)
        found.is_failed.append(is_failed)
    return found
