"""Tell which commands need no request id."""

from __future__ import annotations

from typing import ClassVar


class Idempotent:
    """Marks a command whose repetition does no harm, or that only the leader proposes."""

    __slots__ = ()
    request_id: ClassVar[str] = ""
    request_hash: ClassVar[int] = 0
