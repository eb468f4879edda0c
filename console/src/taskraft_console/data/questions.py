"""Ask a cluster, at most once at a time for each question, and expensive questions seldom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Final, TypeVar

from taskraft_console.data.shared_reads import Reading, SharedReads

if TYPE_CHECKING:
    from taskraft import AsyncClient

LIST_SECONDS: Final = 4.0
"""Maximum age of a list before the list is read again."""
TASK_SECONDS: Final = 0.9
"""Maximum age of one object, such as a task, before the object is read again."""
OPTIONS_SECONDS: Final = 60.0
"""Maximum age of what changes seldom."""
SHARE: Final = 0.01
"""Maximum part of the time in which the nodes answer one expensive question: 1 %."""
STALENESS_SECONDS: Final = 5
"""Maximum age of the state that a node may answer with, in seconds."""

Value = TypeVar("Value")


class Questions:
    """The client of a cluster, and the answers that pages share."""

    def __init__(self, client: AsyncClient, reads: SharedReads, timeout_seconds: float) -> None:
        self.client: Final = client
        self.reads: Final = reads
        self._timeout = timeout_seconds
        self._changed_at = float("-inf")
        self._seldom: dict[Hashable, float] = {}
        """Maximum ages of the answers that took long, in seconds."""

    def forget(self) -> None:
        """Forget all answers, so that the next page shows the effect of a change."""
        self.reads.forget()
        self._changed_at = asyncio.get_running_loop().time()

    def _staleness(self) -> int | None:
        """Return the maximum age of an answer; None after a change, so that its effect is shown."""
        now = asyncio.get_running_loop().time()
        return STALENESS_SECONDS if now - self._changed_at > STALENESS_SECONDS else None

    async def _read_seldom(
        self, question: Hashable, ask: Callable[[], Awaitable[Value]]
    ) -> Reading[Value]:
        """Return an answer to a question that may be expensive.

        The more time the last answer took, the longer it is kept, so that the nodes spend at most
        `SHARE` of the time on the question.
        """

        async def timed() -> Value:
            clock = asyncio.get_running_loop().time
            began = clock()
            answer = await ask()
            wanted = (clock() - began) / SHARE
            if wanted > LIST_SECONDS:
                self._seldom[question] = wanted
            else:
                self._seldom.pop(question, None)
            return answer

        return await self.reads.read(question, self._seldom.get(question, LIST_SECONDS), timed)
