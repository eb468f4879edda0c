"""Retry policies, and positions in the order of READY tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from taskraft._arguments import choice, hundredths, wrong_type
from taskraft._durations import Duration, milliseconds
from taskraft._message_fields import choices_of, set_field
from taskraft.v1 import task_pb2

if TYPE_CHECKING:
    from typing import Self

Position: TypeAlias = Literal["front", "back"]
Exhausted: TypeAlias = Literal["bury", "dead_letter", "remove"]
_EXHAUSTED_NAMES: Final[Mapping[int, Exhausted]] = {
    task_pb2.RetryPolicy.DEAD_LETTER: "dead_letter",
    task_pb2.RetryPolicy.REMOVE: "remove",
}
_POSITION_NAMES: Final[Mapping[int, Position]] = {
    task_pb2.TaskSpec.FRONT: "front",
    task_pb2.TaskSpec.BACK: "back",
}
EXHAUSTED: Final = choices_of(task_pb2.RetryPolicy.Exhausted)
POSITIONS: Final = choices_of(task_pb2.TaskSpec.Position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Policy for attempts after a failure or a lost lease: their maximum number and their delays.

    The server applies the policy, so it also covers tasks that crash their consumers. A release
    without a reason is no failure.  ``Retry()`` retries at once and without a limit.
    """

    attempts_max: int = 0
    """Maximum number of failed attempts; 0: no limit."""
    backoff: Duration = 0
    """Delay after the first failed attempt."""
    factor: float = 2.0
    """Factor by which the delay grows from one failed attempt to the next."""
    backoff_max: Duration = 0
    """Maximum delay; 0: one day."""
    jitter: float = 0.0
    """Maximum fraction, 0 to 1, by which a delay is randomly shortened."""
    exhausted: Exhausted = "bury"
    """Action after the last attempt."""
    position: Position | None = None
    """Before or behind all READY tasks, instead of the task's old position."""

    @classmethod
    def forever(
        cls, backoff: Duration = "1s", backoff_max: Duration = "10m", jitter: float = 0.2
    ) -> Self:
        """Return a policy without a limit of attempts, with the back-off of a tube by default."""
        return cls(backoff=backoff, backoff_max=backoff_max, jitter=jitter)

    @classmethod
    def of(cls, message: task_pb2.RetryPolicy) -> Self:
        """Return the policy of a message."""
        return cls(
            attempts_max=message.attempts_max,
            backoff=message.backoff_ms / 1_000,
            factor=(message.factor_percent or 200) / 100,
            backoff_max=message.backoff_ms_max / 1_000,
            jitter=message.jitter_percent / 100,
            exhausted=_EXHAUSTED_NAMES.get(message.exhausted, "bury"),
            position=_POSITION_NAMES.get(message.position),
        )

    @property
    def backoff_ms(self) -> int:
        """Delay after the first failed attempt, in ms."""
        return milliseconds(self.backoff, "backoff")

    @property
    def backoff_ms_max(self) -> int:
        """Maximum delay in ms; 0: one day."""
        return milliseconds(self.backoff_max, "backoff_max")

    def message(self) -> task_pb2.RetryPolicy:
        """Return the policy as a message."""
        policy = task_pb2.RetryPolicy(
            backoff_ms=self.backoff_ms,
            backoff_ms_max=self.backoff_ms_max,
            exhausted=task_pb2.RetryPolicy.Exhausted.ValueType(
                choice("exhausted", self.exhausted, EXHAUSTED)
            ),
        )
        set_field(policy, "attempts_max", self.attempts_max)
        set_field(policy, "factor_percent", hundredths("factor", self.factor), "factor * 100")
        set_field(policy, "jitter_percent", hundredths("jitter", self.jitter), "jitter * 100")
        if self.position is not None:
            policy.position = position_of(self.position)
        return policy


def policy_of(retry: Retry) -> task_pb2.RetryPolicy:
    """Return a retry policy as a message.

    Raises:
        TypeError: the value is not a Retry, or has a field of a wrong type.
    """
    if not isinstance(retry, Retry):
        raise wrong_type("retry", "a Retry(...)", retry)
    return retry.message()


def position_of(position: Position) -> task_pb2.TaskSpec.Position.ValueType:
    """Return a position in the order of READY tasks as a number."""
    return task_pb2.TaskSpec.Position.ValueType(choice("position", position, POSITIONS))
