"""A task as the server returned it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from taskraft import errors
from taskraft._instants import instant_of
from taskraft._retry import Retry
from taskraft.v1 import task_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

STATES: Final[Mapping[int, str]] = {
    number: name for name, number in task_pb2.Task.State.items() if number
}

OUTCOMES: Final[Mapping[int, str]] = {
    number: name for name, number in task_pb2.Task.Outcome.items() if number
}


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """A failure that ended an attempt of a task, or that came with a burial."""

    attempt: int
    """Number of the attempt."""
    at_ms: int
    """Time of the failure, in ms since the Unix epoch."""
    type: str
    """Class of the failure, for example the name of an exception."""
    message: str
    """The first 512 bytes of the message."""
    is_fatal: bool
    """True: no further attempt was made."""

    @property
    def at(self) -> datetime | None:
        """Time of the failure."""
        return instant_of(self.at_ms)

    def __str__(self) -> str:
        return _text_of(self.type, self.message)


def _text_of(failure_type: str, message: str) -> str:
    return ": ".join(part for part in (failure_type, message) if part)


class Task:
    """A task in its state when it was read or taken.

    Times are those of the cluster's clock. Each time has two attributes: `created_ms` is in ms
    since the Unix epoch and 0 if there is no such time, `created` is a datetime in UTC or None.
    """

    __slots__ = ("message",)

    def __init__(self, message: task_pb2.Task) -> None:
        self.message: Final = message
        """The task as a message, for fields without a property."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self} {self.state}>"

    def __str__(self) -> str:
        return f"{self.message.tube}/{self.message.id}"

    @property
    def tube(self) -> str:
        """Name of the tube."""
        return self.message.tube

    @property
    def id(self) -> int:
        """Id of the task, unique in the tube and never reused."""
        return self.message.id

    @property
    def payload(self) -> bytes:
        """Payload as bytes."""
        return self.message.spec.payload

    @property
    def content_type(self) -> str:
        """Media type of the payload."""
        return self.message.spec.content_type

    @property
    def headers(self) -> Mapping[str, bytes]:
        """Headers of the task."""
        return self.message.spec.headers

    def text(self) -> str:
        """Return the payload as a string.

        Raises:
            UnicodeDecodeError: the payload is not UTF-8.
        """
        return self.message.spec.payload.decode()

    def json(self) -> Any:  # noqa: ANN401 - the type depends on the producer
        """Return the payload as a JSON value.

        Raises:
            PayloadNotJson: the payload is not JSON; also a ValueError.
        """
        payload = self.message.spec.payload
        try:
            return json.loads(payload)
        except (ValueError, RecursionError) as error:
            kind = f"{self.content_type}, " if self.content_type else ""
            raise errors.PayloadNotJson(
                f"{self}: the payload is not JSON ({kind}{len(payload)} bytes): {error}",
                metadata={"tube": self.tube, "task_id": str(self.id)},
            ) from error

    @property
    def state(self) -> str:
        """READY, DELAYED, TAKEN, BURIED, DONE, ZOMBIE or HELD; empty if the task does not exist."""
        return STATES.get(self.message.state, "")

    @property
    def token(self) -> int:
        """Lease token; it grows with every take in the cluster, so it can fence other systems."""
        return self.message.token

    @property
    def attempt(self) -> int:
        """Number of takes of the task, this take included."""
        return self.message.attempt

    @property
    def priority(self) -> int:
        """Current priority."""
        return self.message.priority

    @property
    def created_ms(self) -> int:
        """Time of the put."""
        return self.message.created_ms

    @property
    def created(self) -> datetime | None:
        """Time of the put."""
        return instant_of(self.message.created_ms)

    @property
    def since(self) -> datetime | None:
        """Time at which the task entered its state."""
        return instant_of(self.message.since_ms)

    @property
    def visible_at(self) -> datetime | None:
        """Time at which a DELAYED task becomes READY; None if the task is not DELAYED."""
        return instant_of(self.message.visible_at_ms)

    @property
    def expire_at(self) -> datetime | None:
        """Time at which the TTL ends; None if the task has no TTL."""
        return instant_of(self.message.expire_at_ms)

    @property
    def retain_until(self) -> datetime | None:
        """Time at which a finished task is removed; None if there is no such time."""
        return instant_of(self.message.retain_until_ms)

    @property
    def lease_until_ms(self) -> int:
        """Deadline of the lease; 0 if the lease lasts as long as its session."""
        return self.message.lease_until_ms

    @property
    def lease_until(self) -> datetime | None:
        """Deadline of the lease; None if the lease lasts as long as its session."""
        return instant_of(self.message.lease_until_ms)

    @property
    def retry(self) -> Retry | None:
        """Retry policy of the task; None: the policy of its tube."""
        spec = self.message.spec
        return Retry.of(spec.retry) if spec.HasField("retry") else None

    @property
    def result(self) -> bytes:
        """Result that was stored with the acknowledgement of a kept task."""
        return self.message.result

    @property
    def failure(self) -> str:
        """Failure of the last attempt, like "TimeoutError: no answer"; empty if it did not fail."""
        return _text_of(self.message.failure.type, self.message.failure.message)

    @property
    def failures(self) -> list[AttemptFailure]:
        """The last failures of attempts, oldest first, at most 5."""
        return [
            AttemptFailure(
                one.attempt,
                one.at_ms,
                one.failure.type,
                one.failure.message,
                one.failure.fatal,
            )
            for one in self.message.failures
        ]

    @property
    def failed_attempts(self) -> int:
        """Number of failed attempts since the put, or since a kick, a restart or a move."""
        return self.message.failed_attempts

    @property
    def outcome(self) -> str:
        """PROCESSED, FAILED, BURIED_OUT, EXPIRED, DELETED or DEPENDENCY_FAILED; empty if not ended.

        TIMEOUT: the task had not ended at the end of a wait. NOT_KEPT: the task had ended before a
        wait and is not kept, so its outcome is unknown.
        """
        return OUTCOMES.get(self.message.outcome, "")

    @property
    def waits_for(self) -> list[str]:
        """Unfinished tasks that this task depends on, each like "emails/17"."""
        return [f"{one.tube}/{one.id}" for one in self.message.waits_for]

    def note_settled(self) -> None:
        """Mark the task as settled by another call; does nothing for a task without a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage:
    """One page of a list of tasks."""

    tasks: tuple[Task, ...]
    next_token: str
    """Token of the next page; empty: this is the last page."""
    now_ms: int
    """Time of the cluster, in ms since the Unix epoch; the reference for ages of the tasks."""
    revision: int
    """Log index of the state that the page shows."""
