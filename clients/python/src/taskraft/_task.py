"""A task as the server returned it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from taskraft.v1 import task_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

STATES: Final[Mapping[int, str]] = {
    number: name for name, number in task_pb2.Task.State.items() if number
}

OUTCOMES: Final[Mapping[int, str]] = {
    number: name for name, number in task_pb2.Task.Outcome.items() if number
}


class Task:
    """A task in its state when it was read or taken; times are ms of the cluster's clock."""

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
            ValueError: the payload is not JSON.
        """
        return json.loads(self.message.spec.payload)

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
    def lease_until_ms(self) -> int:
        """Deadline of the lease; 0 if the lease lasts as long as its session."""
        return self.message.lease_until_ms

    @property
    def result(self) -> bytes:
        """Result that was stored with the acknowledgement of a kept task."""
        return self.message.result

    @property
    def failure(self) -> str:
        """Failure of the last attempt, like "TimeoutError: no answer"; empty if it did not fail."""
        failure = self.message.failure
        return ": ".join(part for part in (failure.type, failure.message) if part)

    @property
    def outcome(self) -> str:
        """PROCESSED, FAILED, BURIED_OUT, EXPIRED, DELETED or DEPENDENCY_FAILED; empty if not ended.

        TIMEOUT: the task had not ended at the end of a wait.
        """
        return OUTCOMES.get(self.message.outcome, "")

    @property
    def waits_for(self) -> list[str]:
        """Unfinished tasks that this task depends on, each like "emails/17"."""
        return [f"{one.tube}/{one.id}" for one in self.message.waits_for]

    def note_settled(self) -> None:
        """Mark the task as settled by another call; does nothing for a task without a lease."""
