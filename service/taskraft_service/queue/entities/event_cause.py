"""Describe why a task made a transition, for the events of the change feed.

Failures of the same kind have the same fingerprint, so readers can count them although their
messages contain ids, numbers and addresses.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from taskraft_service.queue.entities.task_view import AttemptFailure, Failure
from taskraft_service.queue.values import value

MESSAGE_BYTES_MAX: Final = 256
"""Maximum size of the message in an event, in bytes of UTF-8; longer messages are cut."""
FINGERPRINTS_KEPT: Final = 1_024
"""Number of failures whose fingerprints are cached."""

_variable: Final = re.compile(
    r"(?P<id>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)"
    r"|(?P<hex>\b(?:0x)?(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b)"
    r"|(?P<number>[0-9]+)"
)
_spaces: Final = re.compile(r"\s+")


@value
class EventCause:
    """Cause of the events of one transition.

    Args:
        reason: class of the failure, or a constant of the queue such as ATTEMPTS_EXHAUSTED.
        message: the first ``MESSAGE_BYTES_MAX`` bytes of the message of the failure.
        target: the other task, as "tube/id": of a move, or the dependency that failed.
        attempt_failed: the transition ended an attempt that failed and counts for the retry policy.
    """

    reason: str = ""
    message: str = ""
    target: str = ""
    attempt_failed: bool = False

    @property
    def fingerprint(self) -> int:
        """Hash of the reason and the normalised message, as a signed number; 0 without both."""
        return _fingerprint(self.reason, self.message)


NO_CAUSE: Final = EventCause()


def failure_cause(
    failure: Failure | AttemptFailure | None, reason: str = "", target: str = ""
) -> EventCause:
    """Return the cause for a failure; ``reason`` stands for a missing class of the failure."""
    if failure is None:
        return EventCause(reason, "", target) if reason or target else NO_CAUSE
    message = failure.message.encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore")
    return EventCause(failure.type or reason, message, target)


def normalised(message: str) -> str:
    """Return a message with placeholders for ids, hexadecimal numbers and decimal numbers."""
    text = _variable.sub(lambda match: f"<{match.lastgroup}>", message)
    return _spaces.sub(" ", text).strip()


@lru_cache(FINGERPRINTS_KEPT)
def _fingerprint(reason: str, message: str) -> int:
    if not reason and not message:
        return 0
    content = f"{reason}\0{normalised(message)}".encode()
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big", signed=True)
