"""A new member of a running cluster receives a snapshot of a long queue while puts continue.

``python -m bench.catch_up --tasks 1000000`` runs the same experiment with more tasks. The number of
tasks is small here, so that the suite stays fast.
"""

import pytest

from bench import catch_up

pytestmark = pytest.mark.real_time

TASKS = 5_000


def test_a_new_member_gets_a_snapshot_while_the_cluster_works(tmp_path):
    report = catch_up.run(tmp_path / "c", TASKS)
    assert report.state_bytes > TASKS * catch_up.PAYLOAD_BYTES
    assert len(report.put_ms_during) >= 2, "the leader accepted puts during the transfer"
