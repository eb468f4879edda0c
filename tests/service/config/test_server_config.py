"""Settings of a node: sources, relations and error messages."""

import pytest

from taskraft_service.config.addresses import ConfigInvalid, parse_peers
from taskraft_service.config.server_config import read_config


@pytest.fixture(autouse=True)
def _named(monkeypatch):
    monkeypatch.setenv("TASKRAFT_NODE_NAME", "n-0")


def test_a_node_without_peers_is_its_own_cluster():
    config = read_config()
    assert [member.member_id for member in config.members] == [1]
    assert config.client_address == "127.0.0.1:7401"


def test_a_joining_node_must_advertise_its_addresses(monkeypatch):
    monkeypatch.setenv("TASKRAFT_JOIN", "a:1, b:2")
    monkeypatch.setenv("TASKRAFT_PEER_LISTEN", "0.0.0.0:7402")
    with pytest.raises(ConfigInvalid, match="peer_advertise is needed"):
        read_config()
    monkeypatch.setenv("TASKRAFT_PEER_ADVERTISE", "c:7402")
    config = read_config()
    assert config.join_addresses == ("a:1", "b:2")
    assert (config.member.member_id, config.member.peer_address) == (0, "c:7402")


def test_a_node_that_peers_do_not_name_joins_their_cluster(monkeypatch):
    monkeypatch.setenv("TASKRAFT_PEERS", "n-1=b:7402/b:7401,n-2=c:7402")
    config = read_config()
    assert config.is_joiner
    assert config.join_addresses == ("b:7401", "c:7401")
    assert config.member.member_id == 0
    monkeypatch.setenv("TASKRAFT_JOIN", "d:1")
    assert read_config().join_addresses == ("d:1",)
    monkeypatch.delenv("TASKRAFT_JOIN")
    monkeypatch.setenv("TASKRAFT_NODE_NAME", "n-1")
    config = read_config()
    assert (config.is_joiner, config.join_addresses) == (False, ())
    assert config.member.member_id == 2


def test_the_file_of_the_wanted_number_needs_a_name_with_an_ordinal(monkeypatch):
    monkeypatch.setenv("TASKRAFT_REPLICAS_FILE", "/nowhere/replicas")
    assert str(read_config().replicas_file) == "/nowhere/replicas"
    monkeypatch.setenv("TASKRAFT_NODE_NAME", "n0")
    with pytest.raises(ConfigInvalid, match='replicas_file: the name "n0" does not end in -NUMBER'):
        read_config()


def test_members_are_numbered_by_the_ordinal_of_their_name():
    peers = parse_peers("n-2=c:3,n-0=a:1", 7401)
    assert [(peer.member_id, peer.client_address) for peer in peers] == [
        (3, "c:7401"),
        (1, "a:7401"),
    ]


def test_members_without_an_ordinal_are_numbered_by_position():
    assert [peer.member_id for peer in parse_peers("x=a:1, y=b:1", 7401)] == [1, 2]


def test_ids_and_client_addresses_can_be_given():
    (peer,) = parse_peers("x=7@a:1/b:2", 7401)
    assert (peer.member_id, peer.peer_address, peer.client_address) == (7, "a:1", "b:2")


@pytest.mark.parametrize(
    "text", ["a", "a=b", "a=b:x", "a=b:1,a=c:1", "a=1@b:1,c=1@d:1", "a=b:99999"]
)
def test_malformed_peers_are_refused(text):
    with pytest.raises(ConfigInvalid):
        parse_peers(text, 7401)


@pytest.mark.parametrize(
    ("name", "setting", "part"),
    [
        ("LISTEN", "nonsense", "listen"),
        ("ELECTION_TIMEOUT_MS", "100", "election_timeout_ms"),
        ("HEARTBEAT_MS", "20", "heartbeat_ms"),
        ("TICK_MS", "soon", "tick_ms"),
        ("CONFIG", "/nowhere.toml", "TASKRAFT_CONFIG"),
    ],
)
def test_an_invalid_setting_is_named_in_one_line(monkeypatch, name, setting, part):
    monkeypatch.setenv(f"TASKRAFT_{name}", setting)
    with pytest.raises(ConfigInvalid, match=part) as caught:
        read_config()
    assert "\n" not in str(caught.value)


def test_the_environment_overrides_the_file(monkeypatch, tmp_path):
    file = tmp_path / "node.toml"
    file.write_text('listen = "127.0.0.1:1"\npeer_listen = "127.0.0.1:2"\n')
    monkeypatch.setenv("TASKRAFT_CONFIG", str(file))
    monkeypatch.setenv("TASKRAFT_LISTEN", "127.0.0.1:3")
    config = read_config()
    assert (config.listen, config.peer_listen) == ("127.0.0.1:3", "127.0.0.1:2")


def test_an_unknown_setting_in_the_file_is_refused(monkeypatch, tmp_path):
    file = tmp_path / "node.toml"
    file.write_text("listen = 1\n")
    monkeypatch.setenv("TASKRAFT_CONFIG", str(file))
    with pytest.raises(ConfigInvalid, match="listen"):
        read_config()
