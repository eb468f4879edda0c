"""Run the simulation with fixed seeds and with fresh ones."""

import time
from collections import Counter
from hashlib import blake2b

import pytest

from tests.sim.world import World

STEPS = 1200
FRESH = [time.time_ns() % 1_000_000_000 + number for number in range(8)]
"""Each run of the suite tries seeds of its own; a failing test's name says which it was."""


@pytest.mark.parametrize("seed", [*range(48), *FRESH])
def test_no_invariant_breaks_and_the_group_recovers(seed):
    World(seed).run(STEPS)


@pytest.mark.parametrize("seed", range(4))
def test_five_members_keep_the_invariants_too(seed):
    World(seed, members=5).run(STEPS)


def trace_of(seed: int) -> bytes:
    digest = blake2b()
    world = World(seed)
    world.trace = lambda line: digest.update(line.encode())
    world.run(500)
    return digest.digest()


def test_a_seed_decides_everything():
    assert trace_of(7) == trace_of(7)
    assert trace_of(7) != trace_of(8)


def test_the_faults_strike():
    """A simulation in which nothing breaks proves nothing."""
    counts: Counter[str] = Counter()
    for seed in range(6):
        world = World(seed)
        for _ in range(2000):
            world.step()
        counts += world.counts
    assert len({name for name in counts if name.startswith("fault")}) > 10
    assert counts["client: acknowledged"] > 500
    assert counts["client: reads"] > 20
