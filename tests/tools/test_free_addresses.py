"""Draw free addresses for nodes."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskraft_service.process.dev import dev_nodes
from tests.dev_ports import dev_port
from tools import free_addresses as module
from tools.free_addresses import free_addresses, free_port

pytestmark = pytest.mark.real_time


def test_addresses_are_different_and_on_loopback():
    addresses = free_addresses(20)
    assert len(set(addresses)) == 20
    assert {address.partition(":")[0] for address in addresses} == {"127.0.0.1"}


DRAW = """
import sys
from tools import free_addresses as addresses
addresses.PORTS = [int(port) for port in sys.argv[1:]]
print(*addresses.free_addresses(20), flush=True)
sys.stdin.read()
"""


def narrow_range():
    begin = free_port() % 20_000 + 10_000
    return range(begin, begin + 60)


def ports_of(addresses):
    return {int(address.rpartition(":")[2]) for address in addresses}


@contextmanager
def another_process(ports):
    """Let another process draw 20 of some ports; yield them while the process runs."""
    with subprocess.Popen(
        [sys.executable, "-c", DRAW, *map(str, ports)],
        cwd=Path(module.__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        yield ports_of(other.stdout.readline().split())
        other.stdin.close()


def test_two_processes_never_draw_the_same_address(monkeypatch):
    monkeypatch.setattr(module, "PORTS", narrow_range())
    with another_process(module.PORTS) as of_other:
        ours = ports_of([*free_addresses(10), *free_addresses(10)])
    assert len(of_other | ours) == 40


def test_a_port_is_drawn_with_its_neighbours(monkeypatch):
    monkeypatch.setattr(module, "PORTS", narrow_range())
    first = free_port((-1, 0, 30))
    rest = ports_of(free_addresses(20))
    assert not rest & {first - 1, first, first + 30}


@pytest.mark.parametrize("count", [1, 3])
def test_no_other_process_draws_a_port_of_a_development_cluster(count):
    """A second process with the port would keep a node of another test from starting again."""
    port = dev_port(count)
    nodes = dev_nodes(count, port)
    ours = ports_of(each for node in nodes for each in (node.client, node.peer, node.http))
    # Other tests may use many of these ports, and the other process draws until it has 20.
    with another_process([port - 1, *ours, *range(port + 200, port + 600)]) as of_other:
        assert not of_other & {port - 1, *ours}
