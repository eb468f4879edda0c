"""Judge a history: each promise that the answers of the nodes broke, and figures of the history.

The promises are:

- G1: an acknowledged put is kept.
- G2: no task is invented or altered.
- G3: a task has one holder at a time.
- G4: a removed task never returns.
- G5: tasks are taken in order.
- G6: requests with one request id have one effect.
- G7: valid leases and open sessions are kept.
- G8: answers follow the order of real time.
- G9: no task is taken before its delay has passed.
- G10: replicas are equal.

A rule reports a violation only if no order of the operations within their times, and no allowed
time of an expiry, explains the answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.drill import content_rules, lease_rules, order_rules, request_rules
from tests.drill.history import History, read_history
from tests.drill.task_history import TaskHistories, Violation

RULES: tuple[Callable[[TaskHistories], Iterator[Violation]], ...] = (
    content_rules.lost_tasks,
    content_rules.invented_tasks,
    content_rules.resurrected_tasks,
    content_rules.early_tasks,
    lease_rules.double_holders,
    lease_rules.unowned_settlements,
    lease_rules.lost_holds,
    lease_rules.lost_sessions,
    order_rules.overtaken_tasks,
    order_rules.empty_answers,
    order_rules.concurrent_subqueues,
    order_rules.disordered_ids,
    order_rules.stale_peeks,
    request_rules.repeated_requests,
    request_rules.disordered_positions,
    request_rules.diverged_replicas,
)


@dataclass(frozen=True)
class Evidence:
    """How much a history tested; a history without operations has no violations either."""

    operations: int
    unknown: int
    """Operations of unknown outcome."""
    puts: int
    """Acknowledged tasks."""
    holds: int
    """Leases with an interval in which they were certainly valid."""
    empty: int
    """Takes that found nothing."""


@dataclass(frozen=True)
class Verdict:
    """The judgement of a history."""

    violations: tuple[Violation, ...]
    evidence: Evidence


def judge(history: History) -> Verdict:
    """Apply all rules to a history."""
    histories = TaskHistories(history)
    violations = tuple(found for rule in RULES for found in rule(histories))
    return Verdict(violations, _evidence(histories))


def judge_file(path: Path) -> Verdict:
    """Apply all rules to the history in a file.

    Raises:
        MalformedHistory: the file breaks the format.
    """
    return judge(read_history(path))


def _evidence(histories: TaskHistories) -> Evidence:
    outcomes = Counter(one.outcome for one in histories.history.operations)
    return Evidence(
        operations=sum(outcomes.values()),
        unknown=outcomes["info"],
        puts=sum(put.is_ok for put in histories.puts),
        holds=sum(
            held.ended_ns < histories.held_until_ns(task, held)
            for task in histories.tasks.values()
            for held in task.deliveries
        ),
        empty=sum(take.is_ok and take.answer.get("id") is None for take in histories.takes),
    )


def summary(violations: Iterable[Violation]) -> str:
    """Return the codes with their numbers, for example "2 lost, 1 fifo"; empty without any."""
    counts = Counter(one.code for one in violations)
    return ", ".join(f"{count} {code}" for code, count in counts.most_common())
