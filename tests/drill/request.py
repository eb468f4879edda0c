"""The attempts with one request id, which together take effect at most once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.drill.history import Operation

GIVEN_BACK = "draining"


class Request:
    """All attempts of one mutation; without a request id, a single attempt."""

    def __init__(self, attempts: list[Operation]) -> None:
        self.attempts = attempts
        first = attempts[0]
        self.f = first.f
        self.value = first.value
        self.process = first.process
        self.oks = [one for one in attempts if one.is_ok]
        open_ones = [one for one in attempts if one.may_have_happened]
        self.may_have_happened = bool(open_ones)
        self.invoked_ns = min((one.invoked_ns for one in open_ones), default=first.invoked_ns)
        self.ended_ns = min((one.ended_ns for one in self.oks), default=math.inf)

    @property
    def is_ok(self) -> bool:
        """Return whether an attempt was answered with success."""
        return bool(self.oks)

    @property
    def answer(self) -> dict[str, Any]:
        """The first answer that names a task, otherwise the first answer."""
        named = [one.answer for one in self.oks if one.answer.get("id") is not None]
        return named[0] if named else self.oks[0].answer

    @property
    def may_have_taken_unseen(self) -> bool:
        """Return whether this take may have leased a task that no answer names.

        A node that stops gives the tasks of a forwarded take back, and answers ``draining``. Other
        takes may have passed the tasks over meanwhile.
        """
        if any(one.error == GIVEN_BACK for one in self.attempts):
            return True
        if not self.may_have_happened:
            return False
        if not self.is_ok:
            return True
        return self.answer.get("id") is None and len(self.attempts) > 1


def requests_of(operations: Iterable[Operation]) -> list[Request]:
    """Group attempts by request id, in the order of their first invocations."""
    groups: dict[Any, list[Operation]] = defaultdict(list)
    for number, one in enumerate(operations):
        key = number if one.request_id is None else (one.f, one.request_id)
        groups[key].append(one)
    return [Request(attempts) for attempts in groups.values()]
