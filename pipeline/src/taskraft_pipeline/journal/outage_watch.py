"""Report that an export waits, because no node answers.

The reads of the export run in other processes, whose messages a user does not see.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import FeedUnreachable, PipelineError
from taskraft_pipeline.feed import describe
from taskraft_pipeline.feed_client import FeedClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft_pipeline.options import Options

PROBE_MS: Final = 2_000
"""Maximum time of the call that checks one node, in ms."""
REPEAT_SECONDS: Final = 30.0
"""Time between two messages about one outage, in seconds."""


class OutageWatch:
    """Asks the nodes for the feed, and tells when they stop answering and when they answer again.

    Args:
        options: names the nodes.
        tell: gets one line of text.
        clock: reads a clock in seconds that never goes back.
    """

    def __init__(
        self,
        options: Options,
        tell: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = replace(options, outage_max_ms=0, read_timeout_ms=PROBE_MS)
        self._tell = tell
        self._clock = clock
        self._since: float | None = None
        self._told_at = 0.0

    def check(self) -> None:
        """Ask each node once at most."""
        try:
            with FeedClient(self._options.endpoints, self._options) as client:
                describe(client, is_linearizable=False)
        except FeedUnreachable as error:
            self._silent(str(error))
        except PipelineError:
            self._answered()  # the nodes answer; the export itself reports their refusal
        else:
            self._answered()

    def _silent(self, cause: str) -> None:
        now = self._clock()
        if self._since is None:
            self._since = now
        elif now - self._told_at < REPEAT_SECONDS:
            return
        self._told_at = now
        self._tell(f"waiting since {now - self._since:.0f} s: {cause}")

    def _answered(self) -> None:
        if self._since is not None:
            self._tell(f"the nodes answer again after {self._clock() - self._since:.0f} s")
        self._since = None
