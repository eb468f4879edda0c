"""The leadership does not go to a member whose wall clock is wrong, or that cannot lead."""

import grpc
import pytest

from taskraft.v1 import cluster_service_pb2
from taskraft_service.clock.cluster_clock import wall_ms
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import ack, create, put, reason_of, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

HOUR_MS = 3_600_000


async def test_a_transfer_to_a_wrong_clock_is_refused_and_a_right_one_is_chosen(tmp_path):
    async with cluster_in(tmp_path) as three:
        leader, (wrong, right) = three.leader, three.followers
        await create(leader)
        await put(leader, b"task")
        (held,) = (await take(leader)).tasks
        wrong.server.components.clock._wall_ms = lambda: wall_ms() + HOUR_MS
        member = wrong.server.node.status().member_id
        keeper = leader.server.components.clock_keeper
        await turns_until(lambda: keeper.wrong_clock_of(member) is not None)
        request = cluster_service_pb2.TransferLeadershipRequest(name=wrong.server.config.node_name)
        with pytest.raises(grpc.aio.AioRpcError, match="ms ahead of those of a maj") as refused:
            await leader.cluster.TransferLeadership(request, timeout=10)
        assert reason_of(refused.value) == "WRONG_STATE"
        assert three.leader is leader
        chosen = cluster_service_pb2.TransferLeadershipRequest()
        answer = await leader.cluster.TransferLeadership(chosen, timeout=10)
        assert answer.leader == right.server.config.node_name
        await three.settled()
        assert not (await ack(three.leader, [held])).errors, "the lease outlives the transfer"
        wrong.server.components.clock._wall_ms = wall_ms
        clock = three.leader.server.components.clock
        await turns_until(lambda: member in clock.right_members())
        answer = await three.leader.cluster.TransferLeadership(request, timeout=10)
        assert answer.leader == wrong.server.config.node_name


async def test_a_transfer_to_a_member_that_cannot_lead_does_not_stop_the_service(tmp_path):
    async with cluster_in(tmp_path) as three:
        leader, (gone, other) = three.leader, three.followers
        learner = cluster_service_pb2.AddMemberRequest(
            name="learner", peer_address="127.0.0.1:1", address="127.0.0.1:2"
        )
        await leader.cluster.AddMember(learner, timeout=10)
        member = gone.server.node.status().member_id
        await three.stop(gone)
        await turns_until(lambda: not leader.server.node.status().peers[member].is_active)
        phases = []
        leader.server.components.phases.listen(phases.append)
        for name, why in (("learner", "is a learner"), (gone.server.config.node_name, "answer")):
            request = cluster_service_pb2.TransferLeadershipRequest(name=name, request_id="r")
            with pytest.raises(grpc.aio.AioRpcError, match=why) as refused:
                await other.cluster.TransferLeadership(request, timeout=10)
            assert reason_of(refused.value) == "WRONG_STATE"
        assert three.leader is leader
        assert phases == []
