"""Members with damaged logs complete each other; no member ends with another log."""

import pytest

from tests.sim.log_damage import run

SEEDS = 150
NIGHT_SEEDS = 10_000


def test_each_entry_that_is_whole_somewhere_returns():
    completed = sum(run(seed) for seed in range(SEEDS))
    assert completed > SEEDS // 3, "the histories damage too little or too much"


@pytest.mark.nightly
def test_many_histories():
    assert sum(run(seed) for seed in range(SEEDS, NIGHT_SEEDS)) > NIGHT_SEEDS // 3
