"""A large put over a slow link is acknowledged and costs no election.

The whole table, with all rates, delays and sizes, is ``make slow-links``.
"""

import pytest

from tests.cluster.slow_links_table import MIB, puts_over

pytestmark = pytest.mark.cluster

ATTEMPTS = 2
"""Maximum number of attempts: a machine that is busy with other tests may miss an election
timeout."""


@pytest.mark.parametrize(
    ("megabits", "delay_ms", "sizes"),
    [
        # The larger put takes 3 s, which is several election timeouts.
        (46, 10, (4 * MIB, 16 * MIB)),
        (4, 200, (MIB // 2,)),  # A round trip takes longer than an election timeout.
    ],
)
def test_a_large_put_over_a_slow_link_costs_no_election(tmp_path, megabits, delay_ms, sizes):
    for attempt in range(ATTEMPTS):
        puts = list(puts_over(tmp_path / f"c{attempt}", megabits, delay_ms, sizes))
        assert len(puts) == len(sizes)
        if all(put.is_right for put in puts):
            return
    pytest.fail("\n".join(map(str, puts)))
