"""Check that an injected error is found, repeats, and shrinks to few decisions."""

import subprocess
import sys

import pytest

from tests.sim import __main__ as program
from tests.sim.decisions import format_numbers, parse_numbers
from tests.sim.disk import SimFile
from tests.sim.seeds import run_seed, shrink_run
from tests.sim.shrink import Trial, shrink

pytestmark = pytest.mark.real_time

STEPS = 800


def test_the_result_needs_each_of_its_decisions():
    needed = {3, 40, 77}
    assert shrink(range(100), lambda chosen: Trial(needed <= set(chosen), 1)) == sorted(needed)


def test_the_result_is_empty_if_every_run_fails():
    assert shrink(range(100), lambda _: Trial(True, 1)) == []


def test_shrinking_stops_at_its_limit_of_steps():
    """A long run uses up as many steps as many short ones."""
    steps = []

    def run(chosen):
        steps.append(10 * len(chosen))
        return Trial(len(chosen) >= 90, steps[-1])

    left = shrink(range(100), run, steps_max=5000)
    assert sum(steps[:-1]) < 5000 <= sum(steps)
    assert len(left) >= 90


@pytest.mark.parametrize("text", ["none", "5", "3,17,40-52", "1-2"])
def test_formatted_numbers_are_parsed_back(text):
    assert (format_numbers(parse_numbers(text)) or "none") == text


@pytest.fixture(scope="module")
def broken():
    """Let disks lie: content reported as synced is lost in a power loss."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimFile, "sync", lambda file: file._disk.operate())
        yield


@pytest.fixture(scope="module")
def found(broken):
    """Return the first failing run."""
    runs = (run_seed(seed, STEPS) for seed in range(200))
    return next(run for run in runs if run.failure)


def test_an_injected_error_is_found_repeats_and_shrinks(found):
    assert run_seed(found.seed, STEPS).failure == found.failure
    finding = shrink_run(found, STEPS, steps_max=48_000)
    assert len(finding.decisions) < found.decided / 2
    again = run_seed(found.seed, finding.steps, frozenset(finding.decisions))
    assert again.failure == finding.smallest.failure
    assert f"SEED_BASE={found.seed}" in finding.command
    assert format_numbers(finding.decisions) in finding.command


def test_the_program_prints_the_command_that_repeats_a_failure(found, monkeypatch, capsys):
    words = ["sim", "--seeds", "1", "--steps", f"{STEPS}", "--seed-base", f"{found.seed}"]
    monkeypatch.setattr(sys, "argv", [*words, "--shrink-steps", "4000"])
    assert program.main() == 1
    said = capsys.readouterr().out
    assert "1 violations" in said
    assert f"make sim SEEDS=1 SEED_BASE={found.seed} STEPS=" in said


def test_the_program_prints_seeds_speed_faults_and_violations():
    words = [sys.executable, "-m", "tests.sim", "--seeds", "3", "--steps", "800"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    *faults, last = done.stdout.splitlines()
    assert "3 seeds" in last
    assert "steps/s" in last
    assert "0 violations" in last
    assert any("fault: " in line for line in faults)
