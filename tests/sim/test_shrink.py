"""A broken core is found, the failure repeats, and it shrinks to few decisions."""

import subprocess
import sys

import pytest

from replication.core.log import RaftLog
from tests.sim import __main__ as program
from tests.sim.decisions import format_numbers, parse_numbers
from tests.sim.seeds import run_seed, shrink_run
from tests.sim.shrink import shrink

STEPS = 1500


def test_what_is_left_takes_every_decision_that_is_left():
    needed = {3, 40, 77}
    assert shrink(range(100), lambda chosen: needed <= set(chosen)) == sorted(needed)


def test_nothing_is_left_of_what_fails_anyway():
    assert shrink(range(100), lambda _: True) == []


def test_shrinking_ends_after_the_runs_it_is_given():
    runs = []
    left = shrink(range(100), lambda chosen: runs.append(1) or len(chosen) >= 90, runs_max=7)
    assert len(runs) == 7
    assert len(left) >= 90


@pytest.mark.parametrize("text", ["none", "5", "3,17,40-52", "1-2"])
def test_numbers_are_read_as_they_are_written(text):
    assert (format_numbers(parse_numbers(text)) or "none") == text


@pytest.fixture
def broken(monkeypatch):
    """Give votes to candidates whose logs are behind: committed entries get lost."""
    monkeypatch.setattr(RaftLog, "is_up_to_date", lambda *_: True)


def first_failure(first_seed=0):
    runs = (run_seed(seed, STEPS) for seed in range(first_seed, 200))
    return next(run for run in runs if run.failure)


@pytest.mark.usefixtures("broken")
def test_a_broken_core_is_found_and_the_failure_repeats_and_shrinks():
    run = first_failure()
    assert run_seed(run.seed, STEPS).failure == run.failure
    finding = shrink_run(run, STEPS, runs_max=150)
    assert len(finding.decisions) < run.decided / 2
    again = run_seed(run.seed, finding.steps, frozenset(finding.decisions))
    assert again.failure == finding.smallest.failure
    assert f"SEED_BASE={run.seed}" in finding.command
    assert format_numbers(finding.decisions) in finding.command


@pytest.mark.usefixtures("broken")
def test_the_program_says_how_to_repeat_what_it_found(monkeypatch, capsys):
    seed = first_failure().seed
    words = ["sim", "--seeds", "1", "--steps", f"{STEPS}", "--seed-base", f"{seed}"]
    monkeypatch.setattr(sys, "argv", [*words, "--shrink-runs", "20"])
    assert program.main() == 1
    said = capsys.readouterr().out
    assert "1 violations" in said
    assert f"make sim SEEDS=1 SEED_BASE={seed} STEPS=" in said


def test_the_program_prints_seeds_speed_faults_and_violations():
    words = [sys.executable, "-m", "tests.sim", "--seeds", "3", "--steps", "800"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    *faults, last = done.stdout.splitlines()
    assert "3 seeds" in last
    assert "steps/s" in last
    assert "0 violations" in last
    assert any("fault: " in line for line in faults)
