"""A leader appends only entries that can be read back."""

import pytest

from taskraft_replication.core.errors import DropReason, ProposalDropped
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
