"""Share reads of the cluster between all pages: one call at a time for each question.

Many open pages ask the same questions. The first question starts a call; the others wait for this
call, or get its answer for as long as the answer is fresh. So any number of open pages costs the
nodes as much as one page.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from taskraft import TaskraftError, errors

ANSWERS_MAX: Final = 512
"""Maximum number of kept answers of one cluster."""

_SILENT: Final = (errors.RetryableError, errors.DeadlinePassed)
"""Errors after which an older answer is still useful."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Reading(Generic[Value]):
    """An answer of the cluster."""

    value: Value
    age_seconds: float
    problem: str = ""
    """Reason why a newer answer could not be read; empty: the answer is fresh."""


@dataclass(frozen=True, slots=True)
class _Answer:
    value: object
    read_at: float
    """Time of the answer, by the clock of the event loop."""


class SharedReads:
    """Keeps answers for a short time, and asks each question once at a time.

    Args:
        answers_max: maximum number of kept answers; the least recently used ones are dropped.
    """

    def __init__(self, answers_max: int = ANSWERS_MAX) -> None:
        self._answers_max = answers_max
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._changes = 0
        """Number of changes so far. A call that began before a change is not shared after it."""
        self._calls: dict[tuple[int, Hashable], asyncio.Task[object]] = {}
        self.calls: int = 0
        """Number of questions that were sent to the cluster."""

    @property
    def is_asking(self) -> bool:
        """Whether a call to the cluster is in progress."""
        return bool(self._calls)

    async def read(
        self,
        question: Hashable,
        age_seconds_max: float,
        ask: Callable[[], Awaitable[Value]],
    ) -> Reading[Value]:
        """Return an answer that is at most `age_seconds_max` old.

        If the cluster does not answer, return the last answer with the problem.

        Raises:
            TaskraftError: the cluster does not answer, and there is no earlier answer.
        """
        now = asyncio.get_running_loop().time()
        kept = self._answers.get(question)
        if kept is not None and now - kept.read_at <= age_seconds_max:
            self._answers.move_to_end(question)
            return Reading(cast("Value", kept.value), now - kept.read_at)
        key = (self._changes, question)
        call = self._calls.get(key)
        if call is None:
            call = asyncio.create_task(self._ask(key, ask))
            self._calls[key] = call
            call.add_done_callback(lambda done: self._end(key, done))
        try:
            # A page that is closed must not cancel the call of the other pages.
            value = cast("Value", await asyncio.shield(call))
        except TaskraftError as error:
            if kept is None or not isinstance(error, _SILENT):
                raise
            age = asyncio.get_running_loop().time() - kept.read_at
            return Reading(cast("Value", kept.value), age, f"{error.reason}: {error}")
        return Reading(value, 0.0)

    async def read_soon(
        self,
        question: Hashable,
        age_seconds_max: float,
        ask: Callable[[], Awaitable[Value]],
        patience_seconds: float,
    ) -> Reading[Value] | None:
        """Return an answer after at most `patience_seconds`; the call goes on for later pages.

        If there is no fresh answer in that time, return the last answer, with its age; None: there
        is no answer yet.

        Raises:
            TaskraftError: the cluster does not answer, and there is no earlier answer.
        """
        patience = asyncio.timeout(patience_seconds)
        try:
            async with patience:
                return await self.read(question, age_seconds_max, ask)
        except TimeoutError:
            if not patience.expired():
                raise  # the call has a time limit too
        kept = self._answers.get(question)
        if kept is None:
            return None
        age = asyncio.get_running_loop().time() - kept.read_at
        return Reading(cast("Value", kept.value), age)

    def _end(self, key: tuple[int, Hashable], call: asyncio.Task[object]) -> None:
        """Note the end of a call; the pages that asked may be closed by then."""
        del self._calls[key]
        if not call.cancelled():
            call.exception()  # so that an error without a waiting page is not reported as lost

    async def _ask(self, key: tuple[int, Hashable], ask: Callable[[], Awaitable[object]]) -> object:
        self.calls += 1
        value = await ask()
        changes, question = key
        if changes != self._changes:
            return value
        self._answers[question] = _Answer(value, asyncio.get_running_loop().time())
        self._answers.move_to_end(question)
        while len(self._answers) > self._answers_max:
            self._answers.popitem(last=False)
        return value

    def forget(self) -> None:
        """Forget all answers, so that the next page shows the effect of a change.

        A call in progress may have read the state before the change. Only the pages that already
        wait for this call get its answer.
        """
        self._changes += 1
        self._answers.clear()
