"""A node uses only a data directory of its own name, member and cluster."""

from dataclasses import replace

import grpc
import pytest

from taskraft_replication.core.types import MemberId
from taskraft_replication.errors import DirectoryForeign
from taskraft_replication.storage.metadata import Identity
from taskraft_replication.storage.stored_member import StoredMember
from taskraft_service.cluster import member_identity
from taskraft_service.cluster.lost_member import LostMemberRecord
from taskraft_service.cluster.member_identity import (
    GROUP_ID,
    DataMissing,
    JoinRefused,
    known_identity,
    resolve_member_identity,
)
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.process.member_replacement import begin_replacement

PEERS = "n1=1@h1:7402/h1:7401,n2=2@h2:7402/h2:7401,n3=3@h3:7402/h3:7401"
OWN = Identity("c", MemberId(2), GROUP_ID, "n2")


def settings(tmp_path, **values):
    fields = {"cluster_id": "c", "node_name": "n2", "peers": PEERS, **values}
    return ServerConfig(data_dir=tmp_path / "data", **fields)


def stored(identity=OWN, *, has_joined=False):
    return StoredMember("d2", identity, has_joined)


FOREIGN = {
    "node": (replace(OWN, name="n1"), "belongs to node 'n1', not to 'n2'"),
    "unnamed node": (replace(OWN, name=""), "belongs to node '', not to 'n2'"),
    "cluster": (replace(OWN, cluster_id="d"), "belongs to cluster_id 'd', not to 'c'"),
}


@pytest.mark.parametrize("has_joined", [False, True])
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_directory_of_another_node_or_cluster_is_refused(tmp_path, kind, has_joined):
    identity, reason = FOREIGN[kind]
    with pytest.raises(DirectoryForeign, match=reason):
        known_identity(settings(tmp_path), stored(identity, has_joined=has_joined))


def test_a_directory_of_another_founder_is_refused(tmp_path):
    with pytest.raises(DirectoryForeign, match="belongs to member 3, not to member 2"):
        known_identity(settings(tmp_path), stored(replace(OWN, member_id=MemberId(3))))


def test_a_founder_keeps_the_id_of_its_settings_and_a_joined_member_that_of_its_data(tmp_path):
    founder = known_identity(settings(tmp_path), stored())
    assert (founder.member.member_id, len(founder.founders)) == (2, 3)
    later = replace(OWN, member_id=MemberId(4))
    joined = known_identity(settings(tmp_path), stored(later, has_joined=True))
    assert (joined.member.member_id, joined.founders, joined.directory_id) == (4, (), "d2")


def test_a_lone_node_with_its_host_name_keeps_the_name_of_its_directory(tmp_path):
    config = ServerConfig(cluster_id="c", data_dir=tmp_path / "data")
    mine = Identity("c", MemberId(1), GROUP_ID, "a-container-that-is-gone")
    identity = known_identity(config, stored(mine))
    assert identity.member.name == "a-container-that-is-gone"
    assert [each.name for each in identity.founders] == ["a-container-that-is-gone"]
    named = ServerConfig(cluster_id="c", data_dir=tmp_path / "data", node_name="n1")
    with pytest.raises(DirectoryForeign):
        known_identity(named, stored(mine))


async def test_the_lost_data_of_another_node_is_refused(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    begin_replacement(settings(tmp_path), "the log is damaged")
    record = LostMemberRecord(tmp_path / "data", GROUP_ID)
    before = record.read()
    assert before.name == "n2"
    with pytest.raises(DirectoryForeign, match="belongs to node 'n2', not to 'n1'"):
        await resolve_member_identity(settings(tmp_path, node_name="n1"))
    assert record.read() == before


@pytest.mark.parametrize("name", ["taskraft-1", "taskraft-4"])
async def test_an_empty_directory_of_an_ordinal_that_is_not_wanted_does_not_join(tmp_path, name):
    file = tmp_path / "replicas"
    file.write_text("1")
    peers = "taskraft-0=h0:7402,taskraft-1=h1:7402"
    config = settings(
        tmp_path, node_name=name, peers=peers, replicas_file=file, advertise="h:1",
        peer_advertise="h:2", bootstrap=False,
    )  # fmt: skip
    with pytest.raises(JoinRefused, match=f"{name} does not join: .* has the number 1"):
        await resolve_member_identity(config)
    file.write_text("one")
    with pytest.raises(JoinRefused, match=r"the data directory is empty, and .* not 'one'"):
        await resolve_member_identity(config)


async def test_a_founder_of_a_wanted_ordinal_asks_to_be_replaced(tmp_path):
    file = tmp_path / "replicas"
    file.write_text("2")
    peers = "taskraft-0=h0:7402,taskraft-1=h1:7402"
    config = settings(
        tmp_path, node_name="taskraft-1", peers=peers, replicas_file=file, bootstrap=False
    )
    with pytest.raises(DataMissing):
        await resolve_member_identity(config)


class Answers:
    """The leader of a cluster: it refuses with the given status codes, then adds member 9."""

    def __init__(self, monkeypatch, *codes):
        self.codes, self.requests = list(codes), []
        monkeypatch.setattr(member_identity, "send_add_member", self.answer)
        monkeypatch.setattr(member_identity, "ASK_PAUSE_SECONDS", 0)

    async def answer(self, _address, request, _security):
        self.requests.append((request.replaces_member, request.replaced_id))
        if self.codes:
            metadata = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(self.codes.pop(0), metadata, metadata, "removed")
        return 9


async def test_a_founder_that_was_removed_joins_again_with_an_empty_directory(
    tmp_path, monkeypatch
):
    answers = Answers(monkeypatch, grpc.StatusCode.NOT_FOUND)
    (tmp_path / "data").mkdir(mode=0o700)
    begin_replacement(settings(tmp_path), "the data directory is empty", is_founding=True)
    identity = await resolve_member_identity(settings(tmp_path))
    assert identity.member.member_id == 9
    assert answers.requests == [(True, 0), (False, 0)]


@pytest.mark.parametrize("code", [grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND])
async def test_a_founder_that_the_cluster_refuses_for_good_does_not_ask_again(
    tmp_path, monkeypatch, code
):
    answers = Answers(monkeypatch, grpc.StatusCode.NOT_FOUND, code)
    (tmp_path / "data").mkdir(mode=0o700)
    begin_replacement(settings(tmp_path), "the data directory is empty", is_founding=True)
    with pytest.raises(JoinRefused, match="removed"):
        await resolve_member_identity(settings(tmp_path))
    assert len(answers.requests) == 2


async def test_a_founder_that_was_removed_does_not_join_again_while_it_is_not_wanted(
    tmp_path, monkeypatch
):
    answers = Answers(monkeypatch, grpc.StatusCode.NOT_FOUND)
    peers = PEERS.replace("n2=2@", "n-1=2@")
    config = settings(tmp_path, node_name="n-1", peers=peers, replicas_file=tmp_path / "replicas")
    (tmp_path / "data").mkdir(mode=0o700)
    begin_replacement(config, "the data directory is empty", is_founding=True)
    (tmp_path / "replicas").write_text("1")
    with pytest.raises(JoinRefused, match="n-1 does not join"):
        await resolve_member_identity(config)
    assert answers.requests == [(True, 0)]
