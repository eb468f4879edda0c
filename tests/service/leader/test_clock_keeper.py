"""A new leader waits for the clocks it needs; wrong wall clocks are reported and corrected."""

import asyncio
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from taskraft_replication.core.types import MemberId, Term
from taskraft_replication.errors import ReadUnconfirmed, Stopped, TransferFailed
from taskraft_service.clock.group_clock import CONFIRM_CHECKS
from taskraft_service.clock.wall_correction import SLEW_PER_MILLE, STEP_AFTER_MS
from taskraft_service.leader import clock_keeper as module
from taskraft_service.leader.clock_keeper import (
    ALL_VOTERS_MS_MAX,
    TRANSFER_AFTER_MS,
    TRANSFER_RETRY_MS,
    ClockKeeper,
)
from taskraft_service.leader.command_submitter import LeaderOverloaded, NotProposed
from tests.service.clock.members import HOUR_MS, WALL_MS, group
from tests.turns import turns_until

TRANSFER_AFTER_CHECKS = CONFIRM_CHECKS + TRANSFER_AFTER_MS // 1_000
TRANSFER_RETRY_CHECKS = TRANSFER_RETRY_MS // 1_000


class Bench:
    """The clock keeper of the first of three members; the first member leads by default."""

    def __init__(self, **ahead_ms):
        self.time, self.members = group(**ahead_ms)
        self.one, self.two, self.three = self.members
        self.one.lead_term = 1
        self.reads = []
        """Errors of the next linearizable reads."""
        self.proposed, self.error = [], None
        self.serves = True
        self.leader_and_term = (MemberId(1), Term(1))
        self.transfers, self.transfer_error = [], None
        self.matches = {1: 9, 2: 5, 3: 7}
        self.inactive, self.learners = set(), set()
        self.keeper = ClockKeeper(
            self.one.clock, self, self, lambda: self.one.wall_offset_ms, self.one.monotonic_ms
        )

    # Interface of the Raft member

    async def read_index(self):
        self.one.applied_ms = WALL_MS - 5
        if self.reads:
            raise self.reads.pop()

    def status(self):
        peers = {
            member: SimpleNamespace(
                match=match,
                is_active=member not in self.inactive,
                is_learner=member in self.learners,
            )
            for member, match in self.matches.items()
        }
        return SimpleNamespace(member_id=1, peers=peers)

    async def transfer_leadership(self, to=None):
        self.transfers.append(to)
        if self.transfer_error is not None:
            raise self.transfer_error

    # Interfaces of the proposer and of the leadership

    def submit(self, encoded, deadline=None):
        del deadline
        if self.error is not None:
            raise self.error
        self.proposed.append(encoded.command.wall_offset_ms)
        self.one.wall_offset_ms = encoded.command.wall_offset_ms
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def transfer(self, transfer):
        await transfer()

    async def checks(self, count=1):
        for _ in range(count):
            self.time.ms += 1_000
            self.one.exchange(self.two, self.three)
            for member in (self.two, self.three):
                member.clock.compare()
            await self.keeper.check(self)


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr(module, "RETRY_MS", 1)
    return Bench()


async def started(bench):
    bench.one.exchange(bench.two, bench.three)
    await bench.keeper.start_clock()
    return bench


async def test_a_leader_that_knows_the_time_starts_once_its_log_is_applied(bench):
    bench.two.lead(1, bench.three)
    bench.two.serve(bench.one, bench.three)
    bench.one.lead_term = 0
    bench.one.hears(bench.two)
    bench.one.lead_term = 2
    await bench.keeper.start_clock()
    assert bench.one.applied_ms > 0, "the log is applied"
    assert bench.one.clock.now_ms() == WALL_MS
    assert bench.keeper.epoch == 1


async def test_a_leader_that_does_not_know_the_time_waits_for_a_majority_and_logs_it(bench):
    bench.reads = [ReadUnconfirmed("no quorum")]
    starting = asyncio.create_task(bench.keeper.start_clock())
    with capture_logs() as logs:
        await turns_until(lambda: bench.keeper.awaited_voters)
        assert not bench.reads, "the log is applied first, with a second attempt"
        bench.time.ms += module.REPORT_AFTER_MS
        await turns_until(lambda: logs)
    assert logs[0]["voters"] == [2, 3]
    assert not starting.done()
    assert not bench.one.clock.cluster.is_known
    bench.one.hears(bench.three)
    await starting
    assert not bench.keeper.awaited_voters
    assert bench.one.clock.now_ms() == WALL_MS + module.REPORT_AFTER_MS
    assert len(logs) == 1


@pytest.mark.real_time
async def test_a_leader_waits_a_limited_time_for_all_voters_while_clocks_disagree(bench):
    bench.two.ahead_ms = HOUR_MS
    starting = asyncio.create_task(bench.keeper.start_clock())
    bench.one.hears(bench.two)
    await turns_until(lambda: bench.keeper.awaited_voters)
    assert bench.keeper.awaited_voters == {3}
    assert bench.keeper.problem == "waits for the clocks of members 3"
    bench.time.ms += ALL_VOTERS_MS_MAX
    await starting
    assert bench.one.clock.now_ms() == WALL_MS + ALL_VOTERS_MS_MAX


async def test_a_leadership_that_ends_during_the_wait_leaves_nothing_behind(bench):
    starting = asyncio.create_task(bench.keeper.start_clock())
    await turns_until(lambda: bench.keeper.awaited_voters)
    starting.cancel()
    await asyncio.wait([starting])
    assert not bench.keeper.awaited_voters


async def test_a_stopping_node_does_not_wait(bench):
    bench.reads = [Stopped("the node is stopping")]
    with pytest.raises(NotProposed, match="stopping"):
        await bench.keeper.start_clock()


async def test_the_leader_slews_the_offset_towards_the_majority(bench):
    await started(bench)
    bench.two.ahead_ms = bench.three.ahead_ms = 500
    bench.one.ahead_ms = 480
    await bench.checks(3)
    assert bench.proposed == [SLEW_PER_MILLE, 2 * SLEW_PER_MILLE]
    await bench.checks(200)
    assert 480 <= bench.one.wall_offset_ms <= 500


async def test_cluster_time_follows_a_contradicting_majority_after_a_while(bench):
    await started(bench)
    for member in bench.members:
        member.ahead_ms = HOUR_MS
    with capture_logs() as logs:
        await bench.checks(STEP_AFTER_MS // 1_000)
        assert bench.proposed == []
        await bench.checks(2)
    assert bench.proposed == [HOUR_MS]
    assert bench.one.clock.now_ms() == WALL_MS + bench.time.ms
    told = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert told == [module.AGAINST, module.STEPPED]


async def test_one_wrong_wall_clock_has_no_effect(bench):
    await started(bench)
    bench.three.ahead_ms = HOUR_MS
    await bench.checks(2 * STEP_AFTER_MS // 1_000)
    assert bench.proposed == []
    assert bench.transfers == []


async def test_a_refused_correction_is_retried(bench):
    await started(bench)
    for member in bench.members:
        member.ahead_ms = 500
    bench.error = LeaderOverloaded("full")
    await bench.checks(3)
    bench.error = None
    await bench.checks()
    assert bench.proposed == [SLEW_PER_MILLE]


async def test_a_new_leadership_restarts_the_waiting_time_of_a_step(bench):
    await started(bench)
    for member in bench.members:
        member.ahead_ms = HOUR_MS
    await bench.checks(STEP_AFTER_MS // 1_000)
    bench.leader_and_term = (MemberId(1), Term(2))
    await bench.checks(STEP_AFTER_MS // 1_000)
    assert bench.proposed == []


async def test_a_leader_with_a_wrong_wall_clock_transfers_leadership_to_a_right_one(bench):
    await started(bench)
    bench.one.ahead_ms = HOUR_MS
    with capture_logs() as logs:
        await bench.checks(TRANSFER_AFTER_CHECKS - 1)
        assert bench.transfers == []
        await bench.checks()
    assert bench.transfers == [3], "the target has the longest log"
    assert [line["log_level"] for line in logs] == ["error", "warning"]
    assert logs[0]["ahead_ms"] == HOUR_MS
    assert bench.keeper.problem == "the wall clock is 3600000 ms ahead of those of a majority"
    bench.one.ahead_ms = 0
    await bench.checks()
    assert not bench.keeper.problem


@pytest.mark.parametrize(
    ("ahead_ms", "inactive", "learners", "expected"),
    [
        (0, {3}, set(), [2]),
        (0, set(), {3}, [2]),
        (600, set(), set(), [2]),
        (0, {2, 3}, set(), []),
    ],
)
async def test_leadership_is_transferred_only_to_an_active_voter_with_a_right_clock(
    bench, ahead_ms, inactive, learners, expected
):
    await started(bench)
    bench.one.ahead_ms, bench.three.ahead_ms = HOUR_MS, ahead_ms
    bench.inactive, bench.learners = inactive, learners
    await bench.checks(TRANSFER_AFTER_CHECKS)
    assert bench.transfers == expected


async def test_a_member_with_a_wrong_wall_clock_is_no_target_while_others_can_lead(bench):
    await started(bench)
    bench.two.ahead_ms = HOUR_MS
    await bench.checks()
    assert bench.keeper.wrong_clock_of(2) == HOUR_MS
    assert bench.keeper.wrong_clock_of(3) is None
    assert bench.keeper.wrong_clock_of(9) is None, "the clock is unknown"
    assert bench.keeper.successor() == 3
    bench.one.ahead_ms, bench.two.ahead_ms = HOUR_MS, 0
    bench.inactive = {2, 3}
    await bench.checks()
    assert bench.keeper.successor() is None


async def test_a_failed_transfer_is_retried_later(bench):
    await started(bench)
    bench.one.ahead_ms = HOUR_MS
    bench.transfer_error = TransferFailed("no")
    await bench.checks(TRANSFER_AFTER_CHECKS + TRANSFER_RETRY_CHECKS - 1)
    assert bench.transfers == [3]
    await bench.checks()
    assert bench.transfers == [3, 3]


async def test_a_follower_reports_and_corrects_nothing(bench):
    bench.two.lead(1, bench.three)
    bench.one.lead_term, bench.serves = 0, False
    bench.one.ahead_ms = -HOUR_MS
    with capture_logs() as logs:
        for ahead_ms in (*[-HOUR_MS] * (CONFIRM_CHECKS + 1), 0, 0):
            bench.one.ahead_ms = ahead_ms
            bench.two.clock.compare()
            bench.two.exchange(bench.one, bench.three)
            bench.two.clock.compare()
            bench.one.hears(bench.two)
            await bench.keeper.check(bench)
    assert [line["log_level"] for line in logs] == ["error", "info"], "once per change"
    assert bench.proposed == bench.transfers == []


async def test_a_single_voter_logs_once_that_no_member_checks_its_clock(bench):
    bench.one.voters = (1,)
    with capture_logs() as logs:
        await bench.keeper.start_clock()
        await bench.keeper.start_clock()
    assert [(each["log_level"], each["event"]) for each in logs] == [("info", module.ALONE)]


async def test_a_group_without_agreement_logs_it(bench):
    await started(bench)
    bench.two.ahead_ms, bench.three.ahead_ms = HOUR_MS, -HOUR_MS
    with capture_logs() as logs:
        await bench.checks(3)
    assert [line["event"] for line in logs] == [module.DISAGREE]
