"""Hostile frames on all ports end no node and no leadership, and puts go on.

`make hostile-frames` sends a million frames and prints the figures.
"""

import pytest

from tests.cluster.hostile_frames_table import (
    HALF_SENT,
    MIB,
    SENT_MAX,
    attacked,
    held_by_half_sent,
    secured_cluster,
)
from tests.service.api.rpc.servers import SERVERS

pytestmark = pytest.mark.cluster

FRAMES = 10_000
HELD_BYTES_MAX = {"grpc": 64 * MIB, "native": 16 * MIB}
"""Maximum growth of a node, by the server of the client port: far below the length of the half-sent
messages. A node holds windows and TLS buffers."""


@pytest.fixture(scope="module", params=SERVERS)
def edge(request):
    return request.param


@pytest.fixture(scope="module")
def cluster(edge, tmp_path_factory):
    with secured_cluster(tmp_path_factory.mktemp("hostile"), edge) as one:
        yield one


def test_hostile_frames_end_no_node_and_no_leadership(cluster):
    result = attacked(cluster, FRAMES, seed=1)
    assert result.is_right, result
    assert result.put_ms


def test_half_sent_messages_of_strangers_take_no_memory(cluster, edge):
    sent, grown = held_by_half_sent(cluster.wait_ready(), "")
    assert sent < HALF_SENT * SENT_MAX / 2, "the node has ended the calls"
    assert grown < HELD_BYTES_MAX[edge]
