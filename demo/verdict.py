"""Combine the checks, and print the verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from demo.delivery_records import RecordsCheck
from demo.feed_check import FeedCheck
from demo.results_check import ResultsCheck

EXAMPLES_SHOWN: Final = 5


@dataclass(slots=True, frozen=True)
class Verdict:
    """Result of the demo."""

    put: int
    records: RecordsCheck
    feed: FeedCheck
    results: ResultsCheck
    failover_ms: int | None
    """Time until a client's put was answered after the kill, in ms; None: no leader was killed."""
    duration_ms: int
    """Time from the first take to the last acknowledgement, in ms."""
    report: str
    """Path of the report, or the reason why there is no report."""
    is_report_missing: bool = False
    """True if the report was requested and not written."""

    @property
    def is_clean(self) -> bool:
        """Return whether no check found a lost or doubly leased task; the report does not count."""
        return (
            self.records.is_clean
            and self.feed.is_clean
            and self.results.is_clean
            and self.records.processed
            == self.feed.processed
            == self.results.stored
            == self.feed.put
            == self.put
        )

    @property
    def tasks_per_second(self) -> int:
        """Processed tasks per second over the whole duration, failover included."""
        return self.records.processed * 1_000 // max(self.duration_ms, 1)

    def lines(self) -> Iterator[str]:
        """Yield the verdict, one finding per line."""
        failover = "no leader was killed"
        if self.failover_ms is not None:
            failover = f"{self.failover_ms / 1_000:.2f} s until a client's put was answered"
        yield line("tasks put", str(self.put))
        yield line("processed", f"{self.records.processed}, by the feed {self.feed.processed}")
        yield line("lost", both(self.records.lost, self.feed.lost))
        yield line("leased twice at once", both(self.records.held_twice, self.feed.held_twice))
        yield line("acknowledged twice", some(self.records.acknowledged_twice))
        yield line("results stored", str(self.results.stored))
        yield line(
            "results missing, wrong", f"{some(self.results.missing)}, {some(self.results.wrong)}"
        )
        if self.records.tokens_out_of_order:
            yield line("tokens out of order", some(self.records.tokens_out_of_order))
        if self.feed.inconsistent:
            yield line("inconsistent in the feed", some(self.feed.inconsistent))
        yield line(
            "processed again",
            f"{self.feed.released} leases ended without ack; {self.records.refused} late"
            " acknowledgements were refused",
        )
        yield line("failover", failover)
        yield line("tasks per second", f"{self.tasks_per_second} (put, taken, acknowledged)")
        yield line("report", self.report)
        yield line("verdict", "OK" if self.is_clean else "FAILED")


def line(name: str, text: str) -> str:
    """Return one finding as a line."""
    return f"  {name:<24}{text}"


def some(found: Collection[object]) -> str:
    """Return the number of findings, with a few examples."""
    examples = ", ".join(str(one) for one in list(found)[:EXAMPLES_SHOWN])
    return f"{len(found)} ({examples})" if found else "0"


def both(records: Collection[object], feed: Collection[object]) -> str:
    """Return the findings of the records and of the feed."""
    return f"{some(records)} by the consumers' records, {some(feed)} by the change feed"
