"""Nodes in network namespaces reach each other over links that lose and reorder packets."""

import subprocess
import sys

import pytest

from tools.local_cluster import LocalCluster
from tools.packet_links import NoNamespaces, PacketLinks
from tools.peer_links import Quality

pytestmark = pytest.mark.real_time

PACKETS = 100
RECEIVE = """
import socket, sys

receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
receiver.settimeout(1.5)
try:
    while True:
        print(receiver.recv(100).decode())
except TimeoutError:
    pass
"""
SEND = """
import socket, sys

sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[3])):
    sender.sendto(str(number).encode(), (sys.argv[1], int(sys.argv[2])))
"""


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(3, tmp_path / "c")


@pytest.fixture
def links(cluster):
    try:
        network = PacketLinks(cluster)
    except NoNamespaces as error:
        pytest.skip(str(error))
    with network:
        yield network


def received(sender, receiver):
    """Send numbered packets from one node to another; return the numbers that arrive, in order."""
    host, _, port = receiver.peer_address.partition(":")
    command = [*receiver.command_prefix, sys.executable, "-c", RECEIVE, host, port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listening:
        assert listening.stdout.readline() == "ready\n"
        command = [*sender.command_prefix, sys.executable, "-c", SEND, host, port, str(PACKETS)]
        subprocess.run(command, check=True)
        return [int(line) for line in listening.stdout]


def test_packets_arrive_in_order_without_faults(cluster, links):
    one, other, _ = cluster.nodes
    assert received(one, other) == list(range(PACKETS))


def test_a_cut_link_drops_all_packets_in_one_direction(cluster, links):
    one, other, third = cluster.nodes
    links.cut([(one.name, other.name)])
    assert received(one, other) == []
    assert received(other, one) == received(one, third) == list(range(PACKETS))
    links.heal()
    assert received(one, other) == list(range(PACKETS))


def test_a_bad_link_loses_and_reorders_packets(cluster, links):
    one, other, _ = cluster.nodes
    bad = Quality(delay_seconds=0.02, jitter_seconds=0.05, loss=0.3)
    links.change([(one.name, other.name)], bad)
    found = received(one, other)
    assert 0 < len(found) < PACKETS
    assert found != sorted(found)
