"""Check the founding of a cluster: one history, and no forgotten vote or acknowledgement."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from taskraft_replication.core.types import (
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    SoftState,
    Term,
)
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.founding_node import FoundingNode


class FoundingRules:
    """The facts that all nodes of a run have established, over all their starts."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._leaders: dict[Term, MemberId] = {}
        self._votes: dict[tuple[MemberId, Term], MemberId] = {}
        self._promised_by: dict[MemberId, set[str]] = defaultdict(set)
        """Directories that have sent a vote or an acknowledgement in the name of a member."""
        self._digests: dict[LogIndex, bytes] = {}
        self.has_led = False
        """Whether a leader was ever elected."""

    def began(self, node: FoundingNode) -> None:
        """Check that no other directory has sent votes or acknowledgements for this member."""
        demand(node.config.cluster_id == self._cluster_id, "a node of another cluster takes part")
        earlier = self._promised_by[node.id] - {node.directory_id}
        demand(
            not earlier, f"{node.id} takes part, but {earlier} voted or acknowledged in its name"
        )

    def sent(self, node: FoundingNode, message: Message) -> None:
        """Check a message when its member sends it."""
        match message.kind:
            case MessageKind.VOTE:
                self._vote(node, message.term, node.id)
            case MessageKind.VOTE_REPLY if not message.reject:
                self._vote(node, message.term, message.to)
            case MessageKind.APPEND_REPLY if not message.reject:
                self._promise(node)
            case _:
                pass

    def _vote(self, node: FoundingNode, term: Term, candidate: MemberId) -> None:
        self._promise(node)
        earlier = self._votes.setdefault((node.id, term), candidate)
        demand(earlier == candidate, f"{node.id} voted for {earlier} and {candidate} in {term}")

    def _promise(self, node: FoundingNode) -> None:
        directories = self._promised_by[node.id]
        directories.add(node.directory_id)
        demand(len(directories) == 1, f"{node.id} has made promises from {directories}")

    def role_changed(self, node: FoundingNode, state: SoftState, term: Term) -> None:
        """Check that each term has one leader."""
        if state.role is RaftRole.LEADER:
            self.has_led = True
            leader = self._leaders.setdefault(term, node.id)
            demand(leader == node.id, f"{leader} and {node.id} lead term {term}: two clusters")

    def applied(self, node: FoundingNode, index: LogIndex) -> None:
        """Check that all members have the same history."""
        digest = node.host.machine.digest()
        demand(
            self._digests.setdefault(index, digest) == digest,
            f"{node.host.name} has another history at {index}: two clusters",
        )
