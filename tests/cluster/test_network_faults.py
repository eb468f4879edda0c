"""Lose packets between real nodes, and restart nodes at new addresses: no put of a client fails."""

import os
import re
import subprocess
import sys

import pytest

from tools import host_names, node_networks

pytestmark = pytest.mark.cluster

SECONDS_MAX = 120


def output_of(*words):
    """Run a benchmark; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("fault", ["isolate", "cut-peers", "cut-follower"])
def test_no_put_fails_when_packets_of_a_node_are_lost(fault):
    """`isolate` and `cut-peers` hit the leader; a client puts all the time."""
    if reason := node_networks.missing():
        pytest.skip(f"the machine allows no network namespaces: {reason}")
    printed = output_of("bench.failover", "--fault", fault, "--rounds", "1")
    assert re.search(r"acknowledged: \d{2,}, failed: 0", printed), printed


@pytest.mark.nightly
def test_no_put_fails_while_secured_nodes_restart_with_new_addresses(tmp_path):
    if reason := host_names.missing(tmp_path / "hosts"):
        pytest.skip(f"the machine allows no mount namespace: {reason}")
    printed = output_of("bench.rolling_restart", "--rounds", "1")
    assert re.search(r"^3 restarts, \d{3,} puts acknowledged, 0 failed", printed, re.MULTILINE), (
        printed
    )
