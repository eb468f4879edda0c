"""Run the demo as `make demo` does, without the report."""

import subprocess
import sys

import pytest

PLAY_TIMEOUT_S = 120


@pytest.mark.cluster
def test_the_demo_loses_nothing_when_its_leader_is_killed(tmp_path):
    command = [sys.executable, "-m", "demo", "--no-report", "--folder", str(tmp_path / "demo")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PLAY_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL to" in done.stdout
    assert "starts again" in done.stdout
    assert "0 by the consumers' records, 0 by the change feed" in done.stdout
    assert "verdict                 OK" in done.stdout
    assert "again         0 leases ended without ack" not in done.stdout, (
        "the report would show no failure"
    )
