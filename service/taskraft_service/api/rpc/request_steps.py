"""Count the steps of one request against a maximum, and do them in slices.

A step is a name that is looked at, a comparison of a name with a pattern, or an element of a list
that is checked. A bound for each element does not bound their product, so the product is counted
for the request as a whole. Steps that are known beforehand are counted before the work begins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeVar

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.languages.patterns import PatternSet
from taskraft_service.limits import BYTES_PER_STEP, REQUEST_STEPS_MAX
from taskraft_service.turns import next_turn

SLICE_STEPS: Final = 8_000
"""Number of steps between two turns of the event loop; they take a few milliseconds."""
COMPILED_AT_ONCE: Final = 100
"""Number of patterns above which the comparison begins in the next turn of the event loop."""
MESSAGE_STEPS: Final = 40
"""Number of steps that stand for building one message of an answer."""

T = TypeVar("T")
U = TypeVar("U")


class RequestSteps:
    """The steps of one request."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0
        """Number of steps that were counted so far."""

    def count(self, steps: int) -> None:
        """Count steps before they are done.

        Raises:
            CallRefused: TOO_MANY_STEPS, the request needs more steps than one request may take.
        """
        self.taken += steps
        if self.taken > REQUEST_STEPS_MAX:
            raise self._refusal("name fewer patterns, or patterns that begin or end differently")

    def count_content(self, content_bytes: int, tasks: int) -> None:
        """Count the payloads and results of tasks before they are read or sent.

        The content of one task is never too much, because no request could read it otherwise.

        Raises:
            CallRefused: TOO_MANY_STEPS.
        """
        if tasks == 1:
            return
        self.taken += content_bytes // BYTES_PER_STEP
        if self.taken > REQUEST_STEPS_MAX:
            raise self._refusal(
                f"the tasks have {content_bytes} bytes of content, and {BYTES_PER_STEP} bytes are"
                " one step; name fewer tasks"
            )

    def _refusal(self, advice: str) -> CallRefused:
        return CallRefused(
            error_pb2.Error.TOO_MANY_STEPS,
            f"the request needs {self.taken} steps, more than {REQUEST_STEPS_MAX}; {advice}",
            {"steps": str(self.taken), "limit": str(REQUEST_STEPS_MAX)},
        )

    async def slices(self, elements: Sequence[T], steps_each: int) -> AsyncIterator[Sequence[T]]:
        """Yield the elements in parts, each in a turn of its own if there are several.

        Raises:
            CallRefused: TOO_MANY_STEPS.
        """
        self.count(len(elements) * steps_each)
        size = max(SLICE_STEPS // steps_each, 1)
        for start in range(0, len(elements), size):
            if len(elements) > size:
                await next_turn()
            yield elements[start : start + size]

    async def in_slices(
        self, elements: Sequence[T], function: Callable[[T], U], steps_each: int
    ) -> list[U]:
        """Return the results of a function for each element; see ``slices``."""
        results: list[U] = []
        async for part in self.slices(elements, steps_each):
            results += map(function, part)
        return results

    async def select(
        self, elements: Sequence[T], accepts: Callable[[T], bool], steps_each: int
    ) -> list[T]:
        """Return the elements that a function accepts; see ``slices``."""
        accepted: list[T] = []
        async for part in self.slices(elements, steps_each):
            accepted += filter(accepts, part)
        return accepted

    async def matching(
        self, names: Sequence[str], patterns: PatternSet, may: Callable[[str], bool]
    ) -> list[str]:
        """Return the names that a pattern matches, in order; other names are not looked at.

        Args:
            names: names in order.
            patterns: the patterns of the request.
            may: returns whether the caller may see a name; asked before a name is compared.

        Raises:
            CallRefused: TOO_MANY_STEPS.
        """
        if len(patterns) > COMPILED_AT_ONCE:
            await next_turn()  # The patterns were compiled in this turn of the event loop.
        candidates = [
            name for span in patterns.candidates(names) for name in names[span.start : span.stop]
        ]
        return await self.select(
            candidates, lambda name: may(name) and patterns.matches(name), 1 + patterns.steps_max
        )
