"""Check the screening in forks: detected mutants are killed, undetected ones are reported."""

import subprocess
import sys

import pytest

from tests.mutants.trial import ROOT

pytestmark = pytest.mark.real_time

BUCKET = "service/taskraft_service/queue/entities/rates.py"
TESTS = "tests/service/queue/entities/test_rates.py"


def test_a_detected_mutant_is_killed_and_the_code_is_unchanged():
    text = (ROOT / BUCKET).read_text()
    words = ["-m", "tests.mutants.screen", BUCKET, "--brief", "--sample", "5", "--tests", TESTS]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    dead = [line for line in lines if line.startswith(f"killed {BUCKET}") and TESTS in line]
    alive = [line for line in lines if line.startswith("SURVIVED")]
    assert len(dead) >= 1
    assert len(dead) + len(alive) == 5
    assert done.returncode == bool(alive)
    assert (ROOT / BUCKET).read_text() == text
