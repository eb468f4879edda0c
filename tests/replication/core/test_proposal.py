"""A leader appends only entries that can be read back."""

import pytest

from taskraft_replication.core.errors import DropReason, ProposalDropped
from taskraft_replication.core.types import Entry, LogIndex, MemberId, Message, MessageKind, Term
from tests.replication.core.cluster import Cluster


def test_an_entry_above_the_limit_of_the_log_is_never_appended():
    cluster = Cluster(3, entry_bytes_max=10)
    cluster.elect(1)
    last = cluster[1].last_index
    for propose in (cluster[1].propose, cluster[1].propose_unsent):
        with pytest.raises(ProposalDropped) as raised:
            propose(b"x" * 11)
        assert raised.value.reason is DropReason.ENTRY_TOO_LARGE
    assert cluster[1].last_index == last
    cluster[1].propose(b"x" * 10)
    cluster.settle()
    assert cluster.applied(3) == [b"x" * 10]


def test_a_forwarded_entry_above_the_limit_is_not_appended():
    cluster = Cluster(3, entry_bytes_max=10, forward_proposals=True)
    cluster.elect(1)
    cluster.settle()
    last = cluster[1].last_index
    cluster[2].propose(b"x" * 11)
    cluster.settle()
    assert cluster[1].last_index == last


def test_the_limit_is_of_single_entries_and_not_of_their_sum():
    cluster = Cluster(3, entry_bytes_max=10)
    cluster.elect(1)
    cluster.settle()
    entries = tuple(Entry(Term(0), LogIndex(0), data) for data in (b"a" * 6, b"b" * 6))
    cluster[1].step(Message(MessageKind.PROPOSE, MemberId(1), MemberId(2), entries=entries))
    cluster.settle()
    assert cluster.applied(3) == [b"a" * 6, b"b" * 6]


def test_a_proposal_that_is_forwarded_twice_keeps_its_first_sender():
    cluster = Cluster(3, forward_proposals=True)
    cluster.elect(1)
    cluster.settle()
    cluster[3].step(Message(MessageKind.PROPOSE, 3, 2, entries=(Entry(0, 0, b"x"),)))
    cluster.flush(3)
    (forwarded,) = cluster.network
    assert (forwarded.kind, forwarded.to, forwarded.sender) == (MessageKind.PROPOSE, 1, 2)
    cluster.settle()
    assert cluster.applied(1) == [b"x"]
