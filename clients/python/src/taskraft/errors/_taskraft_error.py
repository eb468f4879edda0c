"""The base class of all exceptions of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class TaskraftError(Exception):
    """An operation failed; the base class of all exceptions of this package.

    Attributes:
        reason: stable name for programs: a reason of the API or of the client itself.
        code: name of the gRPC status code.
        metadata: variables of the message by name.
        retry_ms: minimum wait before the next attempt, in ms; None if the server did not send it.
        advice: what to do, for people; tracebacks show it below the message.
    """

    reason: str = "UNKNOWN"
    code: str = "UNKNOWN"
    advice: str = ""

    def __init__(
        self,
        message: str = "",
        *,
        metadata: Mapping[str, str] | None = None,
        retry_ms: int | None = None,
        code: str | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(message or self.reason.replace("_", " ").lower())
        self.metadata: Mapping[str, str] = metadata or {}
        self.retry_ms = retry_ms
        if code is not None:
            self.code = code
        self.advice = advice or self.advice
        if self.advice:
            self.add_note(f"hint: {self.advice}")

    def set_advice(self, advice: str) -> None:
        """Replace the advice, also in tracebacks."""
        old = f"hint: {self.advice}"
        self.advice = advice
        self.__notes__ = [note for note in getattr(self, "__notes__", ()) if note != old]
        self.add_note(f"hint: {advice}")

    @property
    def message(self) -> str:
        """Description of the error, for people."""
        return str(self.args[0])
