"""Draw free addresses for nodes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import free_addresses as module
from tools.free_addresses import free_addresses

pytestmark = pytest.mark.real_time


def test_addresses_are_different_and_on_loopback():
    addresses = free_addresses(20)
    assert len(set(addresses)) == 20
    assert {address.partition(":")[0] for address in addresses} == {"127.0.0.1"}


DRAW = """
import sys
from tools import free_addresses as addresses
addresses.PORTS = range(*map(int, sys.argv[1:]))
print(*addresses.free_addresses(20), flush=True)
sys.stdin.read()
"""


def test_two_processes_never_draw_the_same_address(monkeypatch):
    begin = int(free_addresses(1)[0].partition(":")[2]) % 20_000 + 10_000
    ports = range(begin, begin + 60)
    monkeypatch.setattr(module, "PORTS", ports)
    with subprocess.Popen(
        [sys.executable, "-c", DRAW, str(ports.start), str(ports.stop)],
        cwd=Path(module.__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        of_other = other.stdout.readline().split()
        ours = [*free_addresses(10), *free_addresses(10)]
        other.stdin.close()
    assert len({*of_other, *ours}) == 40
