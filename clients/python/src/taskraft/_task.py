"""Show a task as the server knows it."""

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
    """A task as it was when it was read or taken; all times are milliseconds of the cluster."""

    __slots__ = ("message",)

    def __init__(self, message: task_pb2.Task) -> None:
        self.message: Final = message
        """The task as the contract writes it, for what has no property here."""

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
        """Number of the task, unique in the tube for ever."""
        return self.message.id

    @property
    def payload(self) -> bytes:
        """The work itself."""
        return self.message.spec.payload

    @property
    def content_type(self) -> str:
        """Media type of the payload."""
        return self.message.spec.content_type

    @property
    def headers(self) -> Mapping[str, bytes]:
        """What travels beside the payload."""
        return self.message.spec.headers

    def text(self) -> str:
        """Return the payload as text.

        Raises:
            UnicodeDecodeError: It is not UTF-8.
        """
        return self.message.spec.payload.decode()

    def json(self) -> Any:  # noqa: ANN401 - what it holds is agreed upon with the producer
        """Return the payload as the JSON value that it holds.

        Raises:
            ValueError: It is not JSON.
        """
        return json.loads(self.message.spec.payload)

    @property
    def state(self) -> str:
        """READY, DELAYED, TAKEN, BURIED, DONE, ZOMBIE or HELD; empty if it does not exist."""
        return STATES.get(self.message.state, "")

    @property
    def token(self) -> int:
        """The lease; it grows with every take in the cluster, so it fences other systems too."""
        return self.message.token

    @property
    def attempt(self) -> int:
        """How often the task has been taken, this time included."""
        return self.message.attempt

    @property
    def priority(self) -> int:
        """The priority in force."""
        return self.message.priority

    @property
    def created_ms(self) -> int:
        """When it was put."""
        return self.message.created_ms

    @property
    def lease_until_ms(self) -> int:
        """When the lease ends by itself; 0 with its session."""
        return self.message.lease_until_ms

    @property
    def result(self) -> bytes:
        """What was stored with the acknowledgement of a kept task."""
        return self.message.result

    @property
    def failure(self) -> str:
        """Why the last attempt failed, like "TimeoutError: no answer"; empty if it did not."""
        failure = self.message.failure
        return ": ".join(part for part in (failure.type, failure.message) if part)

    @property
    def outcome(self) -> str:
        """PROCESSED, FAILED, BURIED_OUT, EXPIRED, DELETED or DEPENDENCY_FAILED; empty: not ended.

        TIMEOUT: it had not ended when the time of a wait was over.
        """
        return OUTCOMES.get(self.message.outcome, "")

    @property
    def waits_for(self) -> list[str]:
        """What has not ended of the tasks that it depends on, each like "emails/17"."""
        return [f"{one.tube}/{one.id}" for one in self.message.waits_for]

    def note_settled(self) -> None:
        """Take note that something else has settled the task."""
