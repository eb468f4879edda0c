"""Run the simulation with fixed seeds and with new ones."""

import time
from collections import Counter
from hashlib import blake2b

import pytest

from tests.sim.seeds import run_seed, shrink_run
from tests.sim.world import World

STEPS = 800
FIXED = 200
FRESH = [time.time_ns() % 1_000_000_000 + number for number in range(50)]
"""Each run of the suite tries seeds of its own; what fails says which it was."""
GROUP = 10
"""Seeds in one test."""


def failures(seeds):
    """Yield what broke, each with the command that repeats it."""
    for seed in seeds:
        run = run_seed(seed, STEPS)
        if run.failure:
            yield str(shrink_run(run, STEPS, steps_max=60_000))


@pytest.mark.parametrize("first", range(0, FIXED, GROUP))
def test_no_invariant_breaks_and_the_group_recovers(first):
    assert next(failures(range(first, first + GROUP)), None) is None


@pytest.mark.parametrize("first", range(0, len(FRESH), GROUP))
def test_nor_with_seeds_that_nobody_has_tried(first):
    assert next(failures(FRESH[first : first + GROUP]), None) is None


def test_who_learns_late_that_it_was_elected_need_not_have_what_is_committed_since():
    """A follower was paused with a vote on its way, and a later term went on without it."""
    assert not run_seed(770_001, 2000).failure


def test_a_slow_follower_may_catch_up_after_the_clients_have_stopped():
    """A new member receives a few entries a message, fewer than the clients put meanwhile."""
    assert not run_seed(7_730_424, 5000).failure


def trace_of(seed: int) -> bytes:
    digest = blake2b()
    run_seed(seed, 500, trace=lambda line: digest.update(line.encode()))
    return digest.digest()


def test_a_seed_decides_everything():
    assert trace_of(7) == trace_of(7)
    assert trace_of(7) != trace_of(8)


def test_the_faults_strike():
    """A simulation in which nothing breaks proves nothing."""
    counts: Counter[str] = Counter()
    for seed in range(24):
        counts += run_seed(seed, 2000).counts
    struck = {name for name in counts if name.startswith("fault")}
    assert len(struck) >= 20, sorted(struck)
    assert counts["fault: membership change"] > 10
    assert counts["snapshots"] > 10
    assert counts["client: acknowledged"] > 1000
    assert counts["client: reads"] > 200


def test_the_queue_is_really_used():
    worlds = (World(seed, members=3) for seed in range(3, 20))
    world = next(each for each in worlds if not each.habits.idle_share)
    world.run(6000)
    history = world.invariants.history
    assert len(history.payloads) > 50
    assert history.token_max > 50
    assert len(history.effects) > 100
    assert len(history.tasks) < len(history.payloads)
