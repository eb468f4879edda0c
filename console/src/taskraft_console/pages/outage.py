"""What people see while the cluster does not answer: which nodes answer, and what goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskraft import TaskraftError
from taskraft.v1.cluster_service_pb2 import Member
from taskraft_console.pages.page import PageVisit


@dataclass(frozen=True, slots=True)
class Outage:
    """The nodes of a cluster that did not answer a page."""

    answering: Sequence[str]
    """Names of the voters that answer the console."""
    silent: Sequence[str]
    """Names of the other voters; empty if no node answers, because then nobody names them."""

    @property
    def has_majority(self) -> bool:
        """Whether so many voters answer that they can elect a leader."""
        return len(self.answering) > len(self.silent)

    @property
    def text(self) -> str:
        """A sentence about the nodes."""
        if not self.answering:
            return "No node answers the console."
        names = f"{', '.join(self.answering)} of {len(self.answering) + len(self.silent)} voters"
        if self.has_majority:
            return f"No leader answers. {names} answer and can elect one; changes wait."
        answer = "answers" if len(self.answering) == 1 else "answer"
        return f"The cluster has no majority: only {names} {answer}. No change can succeed."


async def outage_of(visit: PageVisit) -> Outage:
    """Return the nodes that answer now."""
    try:
        states = (await visit.cluster.nodes()).value
    except TaskraftError:
        return Outage((), ())
    newest = max(states.values(), key=lambda each: each.state.term, default=None)
    if newest is None:
        return Outage((), ())
    voters = [each.name for each in newest.members if each.suffrage == Member.Suffrage.VOTER]
    return Outage(
        [name for name in voters if name in states], [name for name in voters if name not in states]
    )
