"""A node reports itself as started only after the replay of its log."""

from types import SimpleNamespace

from taskraft_service.leader.node_phases import PhaseMachine
from taskraft_service.process.readiness import Readiness


async def test_a_node_that_replays_its_log_has_not_started():
    known = {"commit": 7, "applied": 5}
    node = SimpleNamespace(status=lambda: SimpleNamespace(**known))
    readiness = Readiness(SimpleNamespace(phases=PhaseMachine(), node=node))
    known["commit"] = 1_000  # The leader has reported a later commit since the start.
    answers = []
    for known["applied"] in (5, 6, 7, 8):
        answers.append((await readiness.startupz(None))[0])
    assert answers == [503, 503, 200, 200]
    assert b"applied 8 of 7" in (await readiness.startupz(None))[2]
