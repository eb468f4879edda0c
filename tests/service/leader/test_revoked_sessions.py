"""The check of a principal's sessions lets the event loop run other work."""

import asyncio

from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.leader.revoked_sessions import RevokedSessions

SESSIONS = 500


class Queues:
    """The sessions of one principal, without leases; counts the sessions that are looked at."""

    looked_at = 0

    def session_owners(self):
        return ["mailer"]

    def session_ids_of(self, owner):
        assert owner == "mailer"
        return [f"s{number}" for number in range(SESSIONS)]

    def lease_tokens(self, _session_id):
        self.looked_at += 1
        return []


async def test_one_run_looks_at_one_session_without_leases():
    queues = Queues()
    revoked = RevokedSessions(queues, None, lambda _owner, _tube: True)
    revoked.phase_changed(NodePhase.RUNNING)
    running = asyncio.ensure_future(revoked.run())
    runs = []
    for _ in range(SESSIONS + 10):
        before = queues.looked_at
        await asyncio.sleep(0)
        runs.append(queues.looked_at - before)
    running.cancel()
    assert (max(runs), sum(runs)) == (1, SESSIONS)
