"""What a node shows of Raft says of which group it is."""

from types import SimpleNamespace

from prometheus_client import CollectorRegistry, generate_latest

from replication.core.types import MemberInfo
from replication.node.config import NodeConfig
from replication.node.node import Node
from replication.peers.transport import GrpcTransport
from service.process.metrics import NodeCollector
from tests.replication.counting_machine import CountingMachine


class OfRaft(NodeCollector):
    """Only what is read from the Raft driver; the rest needs a whole node."""

    def __init__(self, node):
        leadership = SimpleNamespace(leader=None, changes=2)
        disk = SimpleNamespace(free_bytes=0, is_low=False)
        super().__init__(node, *[None] * 11)
        self._leadership, self._disk = leadership, disk

    def collect(self):
        families = [*self._of_raft(), *self._of_log()]
        yield from (family for family in families if "disk" not in family.name)


async def test_two_groups_of_one_process_are_told_apart(tmp_path):
    registry = CollectorRegistry()
    nodes = []
    for group_id in (0, 1):
        config = NodeConfig(
            "c", 1, tmp_path / str(group_id), {1: MemberInfo(1, "m1")}, group_id=group_id
        )
        nodes.append(await Node.open(config, CountingMachine(), GrpcTransport()))
        registry.register(OfRaft(nodes[-1]))
    text = generate_latest(registry).decode()
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    of_groups = [
        {line.partition("{")[0] for line in samples if f'{{group="{group_id}"' in line}
        for group_id in (0, 1)
    ]
    assert of_groups[0] == of_groups[1] == {line.partition("{")[0] for line in samples}
    assert {"taskraft_term", "taskraft_log_syncs_total"} <= of_groups[0]
    for node in nodes:
        node._directory.release()
