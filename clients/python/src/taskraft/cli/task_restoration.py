"""Decide how an import restores an exported task exactly, and which fields it cannot restore.

A put cannot set attempts, leases, origins or finished states. It has the group and the dependencies
of the cluster in which it is put. A task with one of them is refused, unless the caller chooses to
import it without the field (``--without``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from taskraft.cli.exported_task import DEPENDENCIES, EXPIRED, GROUP, HISTORY, LEASE, ORIGIN
from taskraft.cli.output import show_instant
from taskraft.v1 import task_pb2

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from taskraft import TubeInfo

UNLIMITED_MS: Final = 3_153_600_000_000
"""Shortest duration that means unlimited: 100 years."""
BURIAL_DELAY_MS: Final = UNLIMITED_MS // 10
"""Delay of a task that is buried after its put, so that no consumer takes the task first."""
FAILURE_BYTES_MAX: Final = 512
"""Maximum size of the message in an AttemptFailure; the message in Failure can be longer."""
UNTIMED_KINDS: Final = ("fifo", "utube")
SUBQUEUE_KINDS: Final = ("utube", "utubettl")
FINISHED: Final = (task_pb2.Task.DONE, task_pb2.Task.ZOMBIE)
UNFINISHED: Final = (
    *(task_pb2.Task.HELD, task_pb2.Task.READY, task_pb2.Task.DELAYED),
    *(task_pb2.Task.TAKEN, task_pb2.Task.BURIED),
)


class Obstacle(NamedTuple):
    """A reason why a task cannot be restored exactly."""

    text: str
    """Field and value, and what is wrong with them."""
    option: str = ""
    """Value of ``--without`` with which the task can be imported; empty: none."""

    def __str__(self) -> str:
        if self.option == EXPIRED:
            return f"{self.text}; to leave such tasks out: --without {self.option}"
        if self.option:
            return f"{self.text} cannot be restored; to import without: --without {self.option}"
        return self.text


class TaskRestoration:
    """Restores exported tasks in one tube.

    Args:
        tube: the tube, with its options in force.
        without: values of ``--without`` that the caller has chosen, see OPTIONAL.
    """

    def __init__(self, tube: TubeInfo, without: Collection[str] = ()) -> None:
        self._tube = tube
        self._options = tube.options
        self._without = frozenset(without)
        self._has_times = tube.kind not in UNTIMED_KINDS

    def obstacles(self, task: task_pb2.Task, now_ms: int) -> list[Obstacle]:
        """Return why a task cannot be restored exactly at an instant; empty: it can."""
        found = [each for each in _lost(task) if each.option not in self._without]
        return [*found, *self._deadline_obstacles(task, now_ms), *self._unsupported(task)]

    def is_left_out(self, task: task_pb2.Task, now_ms: int) -> bool:
        """Return whether the caller leaves a task out because its time to live has ended."""
        return EXPIRED in self._without and 0 < task.expire_at_ms <= now_ms

    def spec(self, task: task_pb2.Task, now_ms: int) -> task_pb2.TaskSpec:
        """Return the put of a task without obstacles, so that its deadlines stay the same.

        A BURIED task is delayed until it is buried.
        """
        spec = task_pb2.TaskSpec()
        spec.CopyFrom(task.spec)
        if GROUP in self._without:
            spec.ClearField("group")
        if DEPENDENCIES in self._without:
            spec.ClearField("depends_on")
            spec.ClearField("on_dependency_failure")
        if _was_delayed(task):
            spec.ClearField("position")  # the first put has ignored it, and this put might not
        delay_ms = self._set_delay(spec, task, now_ms)
        self._set(spec, "priority", task.priority, self._options.priority)
        self._set(spec, "ttr_ms", task.ttr_ms, self._options.ttr_ms or 0)
        left_ms = max(task.expire_at_ms - now_ms - delay_ms, 1) if task.expire_at_ms else 0
        self._set(spec, "ttl_ms", left_ms, self._options.ttl_ms or 0)
        return spec

    def _set_delay(self, spec: task_pb2.TaskSpec, task: task_pb2.Task, now_ms: int) -> int:
        """Set the delay of a put; return the delay by which a put lengthens the time to live."""
        if task.state == task_pb2.Task.HELD:  # the delay begins when the task is no longer HELD
            visible_in_ms = spec.visible_at_ms - now_ms if spec.HasField("visible_at_ms") else 0
            given_ms = spec.delay_ms if spec.HasField("delay_ms") else self._options.delay_ms
            return max(given_ms, visible_in_ms, 0)
        spec.ClearField("delay_ms")
        spec.ClearField("visible_at_ms")
        if self._options.delay_ms:
            spec.delay_ms = 0
        if task.state == task_pb2.Task.DELAYED:
            spec.visible_at_ms = task.visible_at_ms
            return max(task.visible_at_ms - now_ms, 0)
        if task.state == task_pb2.Task.BURIED and self._has_times:
            spec.delay_ms = BURIAL_DELAY_MS  # ``import`` sets the time to live after the put
        return 0

    @staticmethod
    def _set(
        spec: task_pb2.TaskSpec,
        field: Literal["priority", "ttl_ms", "ttr_ms"],
        value: int,
        default: int,
    ) -> None:
        """Set an option if the producer's value or the tube's default would give another value.

        0 means unlimited for ``ttl_ms`` and ``ttr_ms``.
        """
        given = getattr(spec, field) if spec.HasField(field) else default
        if field != "priority" and given >= UNLIMITED_MS:
            given = 0
        if given == value:
            return
        if value == default:
            spec.ClearField(field)
        else:
            setattr(spec, field, value or (0 if field == "priority" else UNLIMITED_MS))

    def _deadline_obstacles(self, task: task_pb2.Task, now_ms: int) -> Iterator[Obstacle]:
        if not task.expire_at_ms or task.state in FINISHED:
            return
        if task.expire_at_ms <= now_ms:
            ended = show_instant(task.expire_at_ms)
            yield Obstacle(f"expire_at_ms: the time to live ended at {ended}", EXPIRED)
        elif max(task.visible_at_ms, now_ms) >= task.expire_at_ms:
            yield Obstacle("expire_at_ms: the time to live ends before the delay ends")

    def _unsupported(self, task: task_pb2.Task) -> Iterator[Obstacle]:
        """Yield the fields that no task of the tube can have."""
        place = f"in the tube {self._tube.name} of kind {self._tube.kind}"
        if not self._has_times:
            given = {
                "priority": task.priority,
                "ttr_ms": task.ttr_ms,
                "expire_at_ms": task.expire_at_ms,
                "visible_at_ms": task.visible_at_ms,
            }
            for field, value in given.items():
                if value:
                    yield Obstacle(f"{field} {value} is not supported {place}")
            if task.state == task_pb2.Task.BURIED and not self._options.take_paused:
                text = f"state BURIED: without delays, {place}, a consumer could take the task"
                yield Obstacle(f"{text} before it is buried; pause the takes of the tube")
        low, high = self._options.priority_min, self._options.priority_max
        if low is not None and high is not None and not low <= task.priority <= high:
            yield Obstacle(f"priority {task.priority} is not allowed {place}: {low} to {high} is")
        if task.spec.subqueue and self._tube.kind not in SUBQUEUE_KINDS:
            yield Obstacle(f"subqueue {task.spec.subqueue} is not supported {place}")


def _was_delayed(task: task_pb2.Task) -> bool:
    return task.spec.delay_ms > 0 or task.spec.visible_at_ms > task.created_ms


def _lost(task: task_pb2.Task) -> Iterator[Obstacle]:
    """Yield the fields that no put can restore."""
    states = task_pb2.Task.State
    if task.state not in UNFINISHED:
        name = states.Name(task.state) if task.state in states.values() else task.state
        yield Obstacle(f"state {name}: a task cannot be put in this state")
        return
    if task.state == states.TAKEN:
        yield Obstacle("state TAKEN, the lease,", LEASE)
    for text in _history(task):
        yield Obstacle(text, HISTORY)
    if task.HasField("origin"):
        yield Obstacle(f"origin {task.origin.tube}/{task.origin.task_id}", ORIGIN)
    if task.spec.group:
        yield Obstacle(f"group {task.spec.group}", GROUP)
    if task.spec.depends_on or task.waits_for:
        yield Obstacle("depends_on", DEPENDENCIES)
    if task.state == states.BURIED and task.spec.position and not _was_delayed(task):
        yield Obstacle("position: a BURIED task cannot be put at a position")


def _history(task: task_pb2.Task) -> Iterator[str]:
    """Yield the attempts, burials and failures, except for one burial of a BURIED task."""
    is_buried = task.state == task_pb2.Task.BURIED
    for field in ("attempt", "failed_attempts"):
        if value := getattr(task, field):
            yield f"{field} {value}"
    if task.times_buried != int(is_buried):
        yield f"times_buried {task.times_buried}"
    if task.HasField("progress"):
        yield "progress"
    if list(task.failures) != (_burial(task) if is_buried else []):
        yield f"failures (number: {len(task.failures)})"
    elif task.HasField("failure") and not is_buried:
        yield "failure"


def _burial(task: task_pb2.Task) -> list[task_pb2.AttemptFailure]:
    """Return the failures of a task that was buried without an attempt, with its reason."""
    if not task.HasField("failure"):
        return []
    reason = task_pb2.Failure()
    reason.CopyFrom(task.failure)
    cut = reason.message.encode()[:FAILURE_BYTES_MAX].decode(errors="ignore")
    reason.message = cut
    at_ms = task.failures[0].at_ms if task.failures else 0
    return [task_pb2.AttemptFailure(attempt=0, at_ms=at_ms, failure=reason)]
