"""Find out why a task is not being delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from taskraft.cli.output import show_duration, show_instant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskraft import Group, Task, TubeInfo, TubeStatistics


class Cause(NamedTuple):
    """A cause of a delayed delivery, with advice."""

    cause: str
    """The cause, in one word."""
    detail: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A task, and the state of the cluster that determines when the task is delivered."""

    task: Task
    tube: TubeInfo
    counts: TubeStatistics
    now_ms: int
    """Time of the cluster, in ms since the Unix epoch."""
    subqueue_taken: int = 0
    """Number of TAKEN tasks in the sub-queue of the task."""
    group: Group | None = None
    """Group of the task, if there is one."""

    def causes(self) -> list[Cause]:
        """Return all causes, the decisive one first; empty: the task is next."""
        match self.task.state:
            case "READY":
                return [*self._of_ready()]
            case "HELD":
                return [*self._of_held()]
            case _:
                return [self._of_state()]

    def _of_state(self) -> Cause:
        task, message = self.task, self.task.message
        name = f"{task.tube} {task.id}"
        match task.state:
            case "DELAYED":
                left = show_duration(max(message.visible_at_ms - self.now_ms, 0))
                why = (
                    f" after {task.failed_attempts} failed attempts" if task.failed_attempts else ""
                )
                return Cause(
                    "DELAYED",
                    f"READY in {left}, at {show_instant(message.visible_at_ms)}{why}",
                    f"deliver now: taskraft task restart {name}",
                )
            case "TAKEN":
                until = show_instant(message.lease_until_ms)
                end = "the end of its session" if until == "-" else until
                return Cause(
                    "TAKEN",
                    f"a consumer holds attempt {task.attempt} until {end}",
                    "wait for the consumer, or ask it to stop: taskraft task cancel " + name,
                )
            case "BURIED":
                return Cause(
                    "BURIED",
                    task.failure or "the task was buried",
                    f"try again: taskraft kick {task.tube} --id {task.id}",
                )
            case _:
                return Cause(
                    "ENDED",
                    f"{task.state}, outcome {task.outcome or 'unknown'}",
                    f"run again: taskraft task restart {name}",
                )

    def _of_held(self) -> Iterator[Cause]:
        if self.task.waits_for:
            yield Cause(
                "DEPENDENCIES",
                f"waits for {', '.join(self.task.waits_for)}",
                "the task follows when these tasks are acknowledged",
            )
        if self.group is not None and self.group.state.upper() == "HELD":
            yield Cause(
                "GROUP_HELD",
                f"the group {self.group.name} is not started",
                f"start the group: taskraft group start {self.group.name}",
            )

    def _of_ready(self) -> Iterator[Cause]:
        options, counts, name = self.tube.options, self.counts, self.tube.name
        if self.tube.quarantined_at:
            yield Cause(
                "QUARANTINE",
                "the driver of the tube failed",
                "move the tasks to a tube with a corrected driver: taskraft task move",
            )
        if options.take_paused:
            yield Cause(
                "TAKES_PAUSED",
                "the takes of the tube are paused",
                f"resume: taskraft tube update {name} --resume-takes",
            )
        taken = counts.tasks.taken
        if options.concurrency and taken >= options.concurrency:
            yield Cause(
                "CONCURRENCY",
                f"{taken} tasks are TAKEN, the maximum of the tube is {options.concurrency}",
                f"raise the maximum: taskraft tube update {name} --concurrency N",
            )
        limit = options.subqueue_concurrency
        subqueue = self.task.message.spec.subqueue
        if subqueue and self.tube.kind.startswith("utube") and self.subqueue_taken >= limit:
            yield Cause(
                "SUBQUEUE_BUSY",
                f"{self.subqueue_taken} tasks of the sub-queue {subqueue} are TAKEN, of {limit}",
                f"raise the maximum: taskraft tube update {name} --subqueue-concurrency N",
            )
        if not counts.waiting and not taken:
            yield Cause("NO_CONSUMER", "no consumer waits, and no task is TAKEN", "start a worker")
        elif not counts.waiting:
            yield Cause(
                "CONSUMERS_BUSY", f"no consumer waits; {taken} tasks are TAKEN", "add consumers"
            )
        for rate, of, option in (
            (options.rate_per_second, "the tube", "--rate-per-second"),
            (
                options.subqueue_rate_per_second if subqueue else 0,
                f"the sub-queue {subqueue}",
                "--subqueue-rate-per-second",
            ),
        ):
            if rate and (counts.waiting or taken):
                yield Cause(
                    "RATE",
                    f"at most {rate} takes per second from {of}",
                    f"wait, or raise the rate: taskraft tube update {name} {option} N",
                )
        if counts.waiting:
            yield Cause(
                "FILTERS",
                f"{counts.waiting} consumers wait; their filters may exclude the task",
                "compare the type and the priority of the task with the consumers",
            )
