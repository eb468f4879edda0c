"""Check everything that the pipeline needs, and print advice for each problem."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft_pipeline import java
from taskraft_pipeline.errors import PipelineError
from taskraft_pipeline.feed import describe
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.verify import verify
from taskraft_pipeline.options import Options, parse_endpoints

if TYPE_CHECKING:
    from taskraft_pipeline.feed import Feed

VERSIONS: Final = {
    "pyspark": ((4, 2), (4, 4)),
    "pandas": ((2, 2), (3, 0)),
    "pyarrow": ((18,), None),
}
"""Minimum version (inclusive) and maximum version (exclusive) by distribution."""
TIMEOUT_MS: Final = 3_000


@dataclass(slots=True, frozen=True)
class Finding:
    """Result of one check."""

    subject: str
    is_well: bool
    text: str


def examine(endpoints: str, folder: str | None) -> list[Finding]:
    """Check Java, the versions, each node, and the journal if one is given."""
    findings = [examine_java(), Finding("python", is_well=True, text=sys.version.split()[0])]
    findings += [examine_version(name) for name in VERSIONS]
    feeds = []
    try:
        addresses = parse_endpoints(endpoints)
    except PipelineError as error:
        return [*findings, Finding("endpoints", is_well=False, text=str(error))]
    for address in addresses:
        finding, feed = examine_node(address)
        findings.append(finding)
        feeds += [feed] if feed else []
    if folder is not None:
        findings.append(examine_journal(folder, feeds[0] if feeds else None))
    return findings


def examine_java() -> Finding:
    """Check the Java that Spark would start."""
    version = java.version()
    is_well = version >= java.VERSION_MIN
    found = f"version {version}" if version else "none"
    return Finding("java", is_well, found if is_well else f"{found}. {java.HINT}")


def examine_version(name: str) -> Finding:
    """Check that a distribution has a supported version."""
    least, below = VERSIONS[name]
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, is_well=False, text="not installed; pip install taskraft-pipeline")
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    is_well = numbers >= least and (below is None or numbers < below)
    wanted = f"at least {dotted(least)}" + (f", below {dotted(below)}" if below else "")
    return Finding(name, is_well, version if is_well else f"{version}; required: {wanted}")


def dotted(version: tuple[int, ...]) -> str:
    """Return a version as a string."""
    return ".".join(str(number) for number in version)


def examine_node(address: str) -> tuple[Finding, Feed | None]:
    """Ask a node for its feed, without retries."""
    options = Options(endpoints=(address,), outage_max_ms=0, read_timeout_ms=TIMEOUT_MS)
    try:
        with FeedClient((address,), options) as client:
            feed = describe(client, is_linearizable=False)
    except PipelineError as error:
        return Finding(address, is_well=False, text=str(error)), None
    events = sum(feed.high.values()) - sum(feed.low.values())
    text = f"feed {feed.feed_id}, {len(feed.high)} partitions, {events:,} events kept"
    return Finding(address, is_well=True, text=text), feed


def examine_journal(folder: str, feed: Feed | None) -> Finding:
    """Check the manifests of a journal, and compare it with the feed."""
    try:
        verdict = verify(Journal.at(folder))
        if feed is not None:
            feed.check(verdict.feed_id)
    except PipelineError as error:
        return Finding("journal", is_well=False, text=str(error))
    if verdict.problems:
        return Finding("journal", is_well=False, text="; ".join(verdict.problems))
    text = f"{verdict.events:,} events, {verdict.conclusion}"
    if feed is not None:
        behind = sum(feed.high.values()) - sum(verdict.next_seq.values())
        text += f", {behind:,} behind the feed"
        gone = [one for one, low in feed.low.items() if low > verdict.next_seq.get(one, 0)]
        if gone:
            return Finding(
                "journal",
                is_well=False,
                text=f"{text}; retention has removed unread events of partitions {gone}",
            )
    return Finding("journal", is_well=True, text=text)
