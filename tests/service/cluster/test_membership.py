"""Add, promote and remove members through the API of running nodes."""

import grpc
import pytest

from taskraft.v1 import cluster_service_pb2 as cluster_pb
from taskraft_service.cluster.member_identity import JoinRefused
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.process.node_server import NodeServer
from tests.service.api.test_three_nodes import cluster_in, three
from tests.service.conftest import Node, config_in, create, put, reason_of, take
from tests.turns import turns_until
from tools.free_addresses import free_addresses

pytestmark = pytest.mark.real_time

__all__ = ["three"]


def adding(name, peer="127.0.0.1:1", client="127.0.0.1:2", **fields):
    return cluster_pb.AddMemberRequest(name=name, peer_address=peer, address=client, **fields)


async def suffrage(node):
    """Return voter or learner for each member, as a node sees it."""
    state = await node.cluster.GetClusterState(cluster_pb.GetClusterStateRequest())
    return {member.name: member.suffrage for member in state.members}


async def promote(node, name, request_id=""):
    request = cluster_pb.PromoteMemberRequest(name=name, request_id=request_id)
    while True:
        try:
            return (await node.cluster.PromoteMember(request)).member
        except grpc.aio.AioRpcError as error:
            if reason_of(error) != "NODE_BEHIND":
                raise


async def remove(node, name):
    request = cluster_pb.RemoveMemberRequest(name=name)
    await node.cluster.RemoveMember(request, timeout=10)


def joiner_in(three, tmp_path, name, target, **settings):
    """Return the settings of a joining node."""
    peer, client = free_addresses(2)
    return config_in(
        tmp_path / name,
        node_name=name,
        join=target,
        listen=client,
        peer_listen=peer,
        cluster_id=three.leader.server.config.cluster_id,
        **settings,
    )


async def start(three, config):
    server = await NodeServer.open(config)
    await server.start()
    node = Node(server, grpc.aio.insecure_channel(config.listen))
    three.nodes.append(node)
    three.configs[config.node_name] = config
    return node


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return reason_of(caught.value)


async def test_a_node_joins_catches_up_and_votes(three, tmp_path):
    await create(three.leader)
    await put(three.leader, *[b"x"] * 50)
    # Any member accepts the call.
    follower = three.followers[0]
    new = await start(three, joiner_in(three, tmp_path, "n7", follower.server.config.listen))
    assert new.server.node.config.member_id == 4, "the id follows the highest one so far"
    assert (await suffrage(three.leader))["n7"] == cluster_pb.Member.LEARNER
    member = await promote(follower, "n7")
    assert (member.suffrage, member.joined) == (cluster_pb.Member.VOTER, True)
    await turns_until(lambda: new.server.components.phases.phase is NodePhase.WAITING)
    # The new member serves calls and may lead.
    assert len((await take(new)).tasks) == 20
    request = cluster_pb.TransferLeadershipRequest(name="n7", request_id="t")
    answer = await new.cluster.TransferLeadership(request, timeout=10)
    assert answer.leader == "n7"
    await turns_until(lambda: new.server.components.phases.phase is NodePhase.RUNNING)
    await put(follower, b"y")
    # After a restart the node is the same member, although its settings still contain the join
    # address.
    name = new.server.config.node_name
    await three.stop(new)
    again = await three.start(name)
    assert again.server.node.config.member_id == 4
    await turns_until(lambda: again.server.components.phases.phase is NodePhase.WAITING)
    assert await suffrage(again) == dict.fromkeys(("n0", "n1", "n2", "n7"), cluster_pb.Member.VOTER)


async def test_a_member_that_returns_with_other_addresses_is_reached_there(three, tmp_path):
    config = joiner_in(three, tmp_path, "n7", three.leader.server.config.listen)
    new = await start(three, config)
    await promote(three.leader, "n7")
    await three.stop(new)
    peer, client = free_addresses(2)
    # The settings of the member need no join address, because the member knows the others.
    moved = config.model_copy(update={"listen": client, "peer_listen": peer, "join": ""})
    again = await start(three, moved)
    await turns_until(
        lambda: all(
            (info.peer_address, info.client_address) == (peer, client)
            for node in three.nodes
            for info in node.server.node.roster.members
            if info.name == "n7"
        )
    )
    await turns_until(lambda: again.server.components.phases.phase is NodePhase.WAITING)
    assert (await suffrage(again))["n7"] == cluster_pb.Member.VOTER


async def test_founders_that_return_with_other_addresses_are_reached_there(three):
    """The settings of the other founders still contain the old addresses."""
    for _ in range(2):
        moved, leader = three.followers[0], three.leader
        config = moved.server.config
        await three.stop(moved)
        peer, client = free_addresses(2)
        peers = config.peers.replace(config.peer_listen, peer).replace(config.listen, client)
        update = {"listen": client, "peer_listen": peer, "peers": peers}
        again = await start(three, config.model_copy(update=update))
        phases = again.server.components.phases
        await turns_until(lambda phases=phases: phases.phase is NodePhase.WAITING)
        state = await leader.cluster.GetClusterState(cluster_pb.GetClusterStateRequest())
        assert client in {member.address for member in state.members}


async def test_an_operator_may_add_a_member_before_its_node_starts(three, tmp_path):
    peer, client = free_addresses(2)
    first = (await three.followers[0].cluster.AddMember(adding("n7", peer, client))).member
    assert (first.id, first.joined) == (4, False)
    again = (await three.followers[1].cluster.AddMember(adding("n7", peer, client))).member
    assert again.id == 4, "a repeated request gets the same member"
    # No node has joined yet.
    promotion = cluster_pb.PromoteMemberRequest(name="n7")
    assert await refused(three.leader.cluster.PromoteMember(promotion)) == "NODE_BEHIND"
    config = config_in(
        tmp_path / "n7",
        node_name="n7",
        join=three.leader.server.config.listen,
        listen=client,
        peer_listen=peer,
    )
    new = await start(three, config)
    assert new.server.node.config.member_id == 4
    assert (await promote(three.leader, "n7")).id == 4


async def test_a_removed_member_stops_and_its_id_is_not_reused(three, tmp_path):
    gone = three.followers[0]
    name = gone.server.config.node_name
    await remove(three.followers[1], name)
    assert "was removed" in str(await gone.server.node.failed)
    await three.stop(gone)
    assert name not in await suffrage(three.leader)
    assert await refused(remove(three.leader, name)) == "MEMBER_NOT_FOUND"
    added = await three.leader.cluster.AddMember(adding(name))
    assert added.member.id == 4


async def test_a_repeated_request_gets_its_first_answer(three):
    # A client whose answers were lost asks another node, under another leader.
    addition = adding("n7", request_id="a")
    added = (await three.leader.cluster.AddMember(addition)).member
    removal = cluster_pb.RemoveMemberRequest(name="n7", request_id="r")
    await three.leader.cluster.RemoveMember(removal)
    # The new leader may first have to apply the change, and takes over after that.
    to = three.followers[0].server.config.node_name
    transfer = cluster_pb.TransferLeadershipRequest(name=to)
    await three.leader.cluster.TransferLeadership(transfer, timeout=10)
    await three.settled()
    roster = three.leader.server.node.roster
    for node in three.nodes:
        await node.cluster.RemoveMember(removal)
        again = (await node.cluster.AddMember(addition)).member
        assert (again.id, again.name, again.suffrage) == (4, "n7", cluster_pb.Member.LEARNER)
        assert again.id == added.id
    assert three.leader.server.node.roster == roster, "no change was repeated"
    # A request with another id is another request.
    another = cluster_pb.RemoveMemberRequest(name="n7", request_id="r2")
    assert await refused(three.leader.cluster.RemoveMember(another)) == "MEMBER_NOT_FOUND"
    assert (await three.leader.cluster.AddMember(adding("n7", request_id="a2"))).member.id == 5


async def test_a_request_id_of_another_client_is_another_membership_request(three):
    leader = three.leader
    for client_id, member in (("a", 4), ("a", 4), ("b", 5)):
        addition = adding("n7", request_id="1", client_id=client_id)
        assert (await leader.cluster.AddMember(addition)).member.id == member
        removal = cluster_pb.RemoveMemberRequest(name="n7", request_id="1", client_id=client_id)
        await leader.cluster.RemoveMember(removal)


async def test_a_repeated_promotion_is_answered_although_the_member_is_gone(three, tmp_path):
    new = await start(three, joiner_in(three, tmp_path, "n7", three.leader.server.config.listen))
    promotion = cluster_pb.PromoteMemberRequest(name="n7", request_id="p")
    assert (await promote(three.leader, "n7", "p")).id == 4
    assert (await three.leader.cluster.PromoteMember(promotion)).member.id == 4
    await remove(three.leader, "n7")
    await new.server.node.failed
    await three.stop(new)
    gone = (await three.leader.cluster.PromoteMember(promotion)).member
    assert (gone.id, gone.suffrage) == (4, cluster_pb.Member.VOTER)
    assert "n7" not in await suffrage(three.leader)


async def test_a_leader_transfers_leadership_before_its_removal(three):
    await create(three.leader)
    gone = three.leader
    await remove(gone, gone.server.config.node_name)
    assert "was removed" in str(await gone.server.node.failed)
    await three.stop(gone)
    await three.settled()
    await put(three.leader, b"x")
    assert len(await suffrage(three.leader)) == 2


async def test_a_member_that_the_majority_needs_is_not_removed(three):
    dead, alive = three.followers
    await three.stop(dead)
    await turns_until(
        lambda: (
            not three.leader.server.node.status().peers[dead.server.node.config.member_id].is_active
        )
    )
    # The dead member may be removed. A running member may not be removed, because the cluster would
    # then need both other members.
    name = alive.server.config.node_name
    assert await refused(remove(three.leader, name)) == "MEMBER_NEEDED"
    await remove(three.leader, dead.server.config.node_name)
    await remove(three.leader, name)
    assert len(await suffrage(three.leader)) == 1
    last = three.leader.server.config.node_name
    assert await refused(remove(three.leader, last)) == "MEMBER_NEEDED"


async def test_a_node_cannot_join_under_a_used_name(three, tmp_path):
    config = joiner_in(three, tmp_path / "other", "n1", three.leader.server.config.listen)
    with pytest.raises(JoinRefused, match=r"member 2, which has another data directory"):
        await NodeServer.open(config)
    strange = config.model_copy(update={"cluster_id": "another", "node_name": "n8"})
    with pytest.raises(JoinRefused, match=r"the id of this cluster is"):
        await NodeServer.open(strange)


async def test_a_join_that_gets_no_answer_fails(tmp_path):
    config = config_in(tmp_path, join=free_addresses(1)[0], join_wait_ms=0)
    with pytest.raises(JoinRefused, match="cannot join the cluster"):
        await NodeServer.open(config)


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (adding("", "x", "y:z"), ["name", "peer_address", "address"]),
        (adding("a b"), ["name"]),
        (adding("n9", directory_id="../x"), ["directory_id"]),
        (adding("n9", cluster_id="another"), ["cluster_id"]),
        (adding("n9", request_id="x" * 65), ["request_id"]),
    ],
)
async def test_a_malformed_member_is_refused_with_all_faults(node, request_, fields):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.cluster.AddMember(request_)
    assert reason_of(caught.value) == "INVALID_FIELD"
    assert all(field in caught.value.details() for field in fields)
    assert len(await suffrage(node)) == 1


async def test_the_number_of_members_is_limited(node):
    for number in range(14):
        await node.cluster.AddMember(adding(f"m{number}"))
    assert await refused(node.cluster.AddMember(adding("m14"))) == "LIMIT_REACHED"


async def test_a_lagging_member_is_not_promoted(tmp_path):
    async with cluster_in(tmp_path) as three:
        new = await start(
            three, joiner_in(three, tmp_path, "n7", three.leader.server.config.listen)
        )
        await promote(three.leader, "n7")
        await remove(three.leader, "n7")
        assert "was removed" in str(await new.server.node.failed)
        await three.stop(new)
        # The name of the removed member may be used for a new member.
        new = await start(
            three, joiner_in(three, tmp_path / "b", "n7", three.leader.server.config.listen)
        )
        assert new.server.node.config.member_id == 5
        leader = three.leader
        await turns_until(lambda: leader.server.node.status().peers[5].is_active)
        await three.stop(new)
        await turns_until(lambda: not leader.server.node.status().peers[5].is_active)
        promotion = cluster_pb.PromoteMemberRequest(name="n7")
        assert await refused(leader.cluster.PromoteMember(promotion)) == "NODE_BEHIND"
