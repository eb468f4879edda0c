"""Wait for the end of an export, and report that the export waits because no node answers.

The reads of the export run in other processes, whose messages a user does not see.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from taskraft.cli.stop_signals import StopSignals
from taskraft_pipeline.errors import FeedUnreachable, PipelineError
from taskraft_pipeline.feed import describe
from taskraft_pipeline.feed_client import FeedClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

    from taskraft_pipeline.options import Options

POLL_SECONDS: Final = 0.2
"""Time between two looks at a query and at signals, in seconds."""
POLLS_PER_CHECK: Final = 25
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
        waited = f" since {now - self._since:.0f} s" if now > self._since else ""
        self._tell(f"waiting for the nodes{waited}: {cause}")

    def _answered(self) -> None:
        if self._since is not None:
            self._tell(f"the nodes answer again after {self._clock() - self._since:.0f} s")
        self._since = None


def wait_for_end(
    query: StreamingQuery, watch: OutageWatch, pause: Callable[[float], object] = time.sleep
) -> int:
    """Wait until a query ends; SIGINT and SIGTERM stop the query.

    No call to the JVM waits, because PySpark prints tracebacks if a signal interrupts such a call.

    Args:
        query: the query of an export.
        watch: gets a check every 5 s.
        pause: waits for a number of seconds.

    Returns:
        Number of the signal that stopped the query; 0 if the query ended by itself.

    Raises:
        PySparkException: the query failed.
    """
    with StopSignals() as stop:
        turn = 0
        while not stop.count:
            if not query.isActive:
                query.awaitTermination()
                return 0
            pause(POLL_SECONDS)
            turn += 1
            if turn % POLLS_PER_CHECK == 0:
                watch.check()
        query.stop()
        return stop.number
