"""Commands are combined into entries, and each caller learns the outcome of its command."""

import asyncio

import pytest

from taskraft.v1 import session_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.core.errors import DropReason, ProposalDropped
from taskraft_replication.core.types import MemberId
from taskraft_replication.errors import NotRaftLeader, ProposalLost
from taskraft_service.clock.cluster_clock import TIMER_MS_MAX
from taskraft_service.command_codecs.sessions import KEEP_SESSIONS, STARTUP
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.entries.log_entry import decode_entry
from taskraft_service.leader.command_submitter import (
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.pending import ProposerLimits
from taskraft_service.leader.proposer import Proposer
from taskraft_service.leader.waiters import Waiters
from taskraft_service.machine.failed_drivers import AppliedEntry
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.operations.leadership import StartupResult
from taskraft_service.queue.operations.sessions import KeepResult
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.stubs.log.v1 import log_pb2
from tests.service.leader.test_waiters import Board, Consumer
from tests.turns import turns_until

LIMITS = ProposerLimits(
    entry_bytes=1_000,
    entry_commands=10,
    entries_in_flight=3,
    pending_commands=50,
    pending_bytes=2_000,
)


class Replicator:
    def __init__(self):
        self.append_idle = True
        self.is_committed = False
        self.entries = []
        self.flushed = 0

    def propose(self, data):
        self.append_idle = self.is_committed = False
        future = asyncio.get_running_loop().create_future()
        self.entries.append((decode_entry(data), future))
        return future

    def pump(self):
        self.flushed = len(self.entries)

    def sync(self, proposer):
        self.append_idle = True
        proposer.wake()

    def apply(self, place, results=None):
        (now_ms, commands), future = self.entries[place]
        results = results or [KeepResult([]) for _ in commands]
        future.set_result(AppliedEntry(place + 1, now_ms, 0, results, {}))


class Core:
    deadline_ms = None

    def __init__(self):
        self.fed = {}

    def expect(self, data, now_ms, commands):
        pass

    def next_deadline_ms(self):
        return self.deadline_ms

    def leases_ended_by(self, command):
        return 0

    def lease_count(self):
        return 0

    def predict_ready(self, commands, now_ms):
        return self.fed


class Clock:
    time_ms = 1_000

    def now_ms(self):
        return self.time_ms


class Observer:
    def __init__(self):
        self.entries = []

    def entry_applied(self, commands, entry_bytes, seconds):
        assert 0 <= seconds < 60
        self.entries.append((commands, entry_bytes))


def command(name="s"):
    return encode_leader_command(
        KEEP_SESSIONS, session_service_pb2.KeepSessionsRequest(session_ids=[name])
    )


class Subscriber(Consumer):
    def take(self, tubes, tasks_max):
        super().take(tubes, tasks_max)
        sources = [pb.TakeSource(tube=tube) for tube in tubes]
        return encode_leader_command(
            TAKE, pb.TakeTasksRequest(sources=sources, tasks_max=tasks_max)
        )


class Bench:
    def __init__(self, board=None):
        self.raft, self.core, self.clock = Replicator(), Core(), Clock()
        self.waiters = Waiters(board or Board())
        self.observer = Observer()
        self.proposer = Proposer(
            self.raft, self.core, self.clock, self.waiters, self.observer, LIMITS
        )

    async def lead(self):
        beginning = asyncio.ensure_future(
            self.proposer.start(encode_leader_command(STARTUP, log_pb2.Startup(member_id=1)))
        )
        await turn()
        self.raft.apply(0, [StartupResult(0)])
        await beginning
        self.raft.append_idle = True

    def names(self, place):
        (_, commands), _ = self.raft.entries[place]
        return [name for one in commands for name in one.session_ids]


async def turn():
    """Run all callbacks that wait for no outside event."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def bench():
    one = Bench()
    await one.lead()
    yield one
    one.proposer.stop()


async def test_commands_of_one_loop_turn_share_an_entry(bench):
    futures = [bench.proposer.submit(command(name)) for name in "abc"]
    await turn()
    assert len(bench.raft.entries) == 2
    assert bench.raft.flushed == 2
    assert bench.names(1) == ["a", "b", "c"]
    results = [KeepResult([name]) for name in "abc"]
    bench.raft.apply(1, results)
    outcomes = await asyncio.gather(*futures)
    assert [outcome.result for outcome in outcomes] == results
    assert {outcome.index for outcome in outcomes} == {2}


async def test_commands_accumulate_while_an_entry_is_in_flight(bench):
    bench.proposer.submit(command("a"))
    await turn()
    for name in "bcd":
        bench.proposer.submit(command(name))
        await turn()
    bench.raft.sync(bench.proposer)
    await turn()
    assert len(bench.raft.entries) == 2
    bench.raft.apply(1)
    await turn()
    assert bench.names(2) == ["b", "c", "d"]


async def test_full_entries_follow_one_another_up_to_a_bound(bench):
    full = LIMITS.entry_commands
    for name in "abcdef":
        for _ in range(full):
            bench.proposer.submit(command(name))
        await turn()
        bench.raft.sync(bench.proposer)
        await turn()
    assert [bench.names(place) for place in (1, 2, 3)] == [[name] * full for name in "abc"]
    assert len(bench.raft.entries) == 4
    bench.raft.apply(1)
    await turn()
    assert bench.names(4) == ["d"] * full


async def test_an_entry_is_bounded_by_commands_and_bytes(bench):
    for _ in range(12):
        bench.proposer.submit(command("a"))
    await turn()
    assert len(bench.names(1)) == 10
    bench.raft.apply(1)
    bench.raft.sync(bench.proposer)
    await turn()
    assert len(bench.names(2)) == 2
    for _ in range(3):
        bench.proposer.submit(command("x" * 450))
    bench.raft.apply(2)
    await turn()
    assert len(bench.names(3)) == 2


async def test_a_command_larger_than_an_entry_stands_alone(bench):
    bench.proposer.submit(command("x" * 1_500))
    bench.proposer.submit(command("a"))
    await turn()
    assert len(bench.names(1)) == 1


async def test_too_many_commands_are_refused(bench):
    for _ in range(50):
        bench.proposer.submit(command("a"))
    with pytest.raises(LeaderOverloaded):
        bench.proposer.submit(command("a"))


async def test_too_many_bytes_are_refused(bench):
    bench.proposer.submit(command("x" * 1_900))
    with pytest.raises(LeaderOverloaded):
        bench.proposer.submit(command("x" * 200))
    bench.proposer.submit(command("x"))


async def test_a_cancelled_command_is_never_proposed(bench):
    loop = asyncio.get_running_loop()
    late = bench.proposer.submit(command("late"), loop.time() - 1)
    gone = bench.proposer.submit(command("gone"))
    gone.cancel()
    bench.proposer.submit(command("here"), loop.time() + 60)
    await turn()
    assert bench.names(1) == ["here"]
    with pytest.raises(NotProposed):
        await late
    assert bench.proposer.dropped == 2


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NotRaftLeader(MemberId(2)), NotProposed),
        (ProposalDropped(DropReason.TRANSFERRING), NotProposed),
        (ProposalDropped(DropReason.TOO_MANY_UNCOMMITTED), LeaderOverloaded),
        (ProposalLost(3, "overwritten"), OutcomeUnknown),
        (ProposalDropped(DropReason.ENTRY_TOO_LARGE), CommandTooLarge),
        (OSError(), OutcomeUnknown),
    ],
)
async def test_a_failure_shows_whether_the_command_may_have_had_an_effect(bench, failure, error):
    future = bench.proposer.submit(command())
    await turn()
    bench.raft.entries[1][1].set_exception(failure)
    with pytest.raises(error):
        await future


async def test_a_node_that_does_not_lead_proposes_nothing(bench):
    waiting = bench.proposer.submit(command())
    bench.proposer.stop()
    with pytest.raises(NotProposed):
        await waiting
    with pytest.raises(NotProposed):
        bench.proposer.submit(command())
    await turn()
    assert len(bench.raft.entries) == 1


async def test_nothing_is_proposed_before_the_startup_entry_is_applied():
    bench = Bench()
    beginning = asyncio.ensure_future(
        bench.proposer.start(encode_leader_command(STARTUP, log_pb2.Startup(member_id=1)))
    )
    await turn()
    with pytest.raises(NotProposed):
        bench.proposer.submit(command())
    bench.raft.apply(0, [StartupResult(0)])
    await beginning
    bench.proposer.submit(command())
    bench.proposer.stop()


async def test_takes_are_appended_to_the_entry_that_serves_them():
    bench = Bench(Board(a=0))
    await bench.lead()
    consumer = Subscriber("a", wanted_tasks=2, one_shot=False)
    heard = []
    consumer.answered = lambda claim, outcome: heard.append(outcome.result)
    bench.waiters.add(consumer)
    bench.core.fed = {"a": 5}
    bench.proposer.submit(command())
    await turn()
    (_, commands), _ = bench.raft.entries[1]
    assert commands[1] == Take(["a"], tasks_max=2)
    bench.raft.apply(1, [KeepResult([]), TakeResult(())])
    await turn()
    assert heard == [TakeResult(())]
    bench.proposer.stop()


class Claimed:
    """A proposer with one consumer whose claim is pending."""

    def __init__(self):
        self.bench = Bench(Board(a=1))
        self.heard = []
        self.consumer = Subscriber("a", wanted_tasks=2, one_shot=False)
        self.consumer.answered = self._answered

    def _answered(self, claim, outcome):
        self.consumer.claimed -= claim.tasks_max
        self.heard.append(outcome)

    async def claim(self):
        await self.bench.lead()
        self.bench.waiters.add(self.consumer)
        self.bench.proposer.wake()
        await turn()
        assert len(self.bench.raft.entries) == 2


async def test_a_take_whose_entry_failed_is_repeated_only_with_new_ready_tasks():
    claimed = Claimed()
    await claimed.claim()
    bench = claimed.bench
    bench.raft.entries[1][1].set_exception(ProposalLost(3, "overwritten"))
    await turn()
    (error,) = claimed.heard
    assert isinstance(error, OutcomeUnknown)
    assert len(bench.raft.entries) == 2
    bench.waiters.expect_ready("a", 1)
    bench.proposer.wake()
    await turn()
    assert len(bench.raft.entries) == 3
    bench.proposer.stop()


async def test_a_refused_take_counts_as_empty():
    claimed = Claimed()
    await claimed.claim()
    refusal = Refusal(Reason.TUBE_NOT_FOUND, "gone")
    claimed.bench.raft.apply(1, [refusal])
    await turn()
    assert [outcome.result for outcome in claimed.heard] == [refusal]
    assert len(claimed.bench.raft.entries) == 2
    claimed.bench.proposer.stop()


async def test_takes_of_an_entry_that_was_cancelled_have_an_unknown_outcome():
    claimed = Claimed()
    await claimed.claim()
    claimed.bench.raft.entries[1][1].cancel()
    await turn()
    (error,) = claimed.heard
    assert isinstance(error, OutcomeUnknown)
    claimed.bench.proposer.stop()


async def test_an_entry_is_measured_when_it_is_applied(bench):
    bench.proposer.submit(command("a"))
    bench.proposer.submit(command("b"))
    await turn()
    bench.raft.apply(1)
    await turn()
    assert [commands for commands, _ in bench.observer.entries] == [1, 2]
    (_, first), (_, second) = bench.observer.entries
    assert 0 < first < second


async def test_proposed_commands_no_longer_count_as_pending(bench):
    for _ in range(3):
        for _ in range(50):
            bench.proposer.submit(command("a"))
        assert bench.proposer.pending == 50
        while bench.proposer.pending:
            bench.raft.sync(bench.proposer)
            await turn()
            for place, (_, future) in enumerate(bench.raft.entries):
                if not future.done():
                    bench.raft.apply(place)
            await turn()
    bench.proposer.submit(command("x" * 1_900))


async def test_a_stopped_proposer_is_never_woken(bench):
    bench.core.deadline_ms = 1_000
    bench.proposer.wake()
    bench.proposer.stop()
    bench.proposer.stop()
    await turn()
    bench.proposer.wake()
    await turn()
    assert len(bench.raft.entries) == 1
    assert bench.proposer._deadline_timer is None


async def test_the_timer_has_a_maximum_delay(bench, monkeypatch):
    waits = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    monkeypatch.setattr(
        loop, "call_later", lambda seconds, what: waits.append(seconds) or call_later(99, what)
    )
    for due_ms in (1_000 + 2 * TIMER_MS_MAX, 1_500, 900):
        bench.core.deadline_ms = due_ms
        bench.proposer._at_deadline()
    assert waits == [TIMER_MS_MAX / 1000, 0.5]
    await turn()
    assert len(bench.raft.entries) == 2


async def test_a_deadline_that_an_entry_in_flight_reaches_causes_no_polling(bench):
    bench.proposer.submit(command())
    await turn()
    bench.core.deadline_ms = 1_000
    bench.proposer._deadline_timer = None
    bench.proposer._at_deadline()
    assert bench.proposer._deadline_timer is None, "the end of the entry sets the timer"
    bench.raft.apply(1)
    await turn()
    assert len(bench.raft.entries) == 3


async def test_commands_that_fill_an_entry_to_the_byte_share_it(bench):
    size = command("").record_bytes
    first = command("x" * (LIMITS.entry_bytes // 2 - size))
    rest = LIMITS.entry_bytes - first.record_bytes
    second = next(
        one for one in map(command, ("x" * n for n in range(999))) if one.record_bytes == rest
    )
    bench.proposer.submit(first)
    bench.proposer.submit(second)
    await turn()
    assert len(bench.names(1)) == 2


async def test_an_empty_entry_moves_the_clock_at_a_deadline(bench):
    bench.core.deadline_ms = 1_000
    bench.proposer.wake()
    await turn()
    (now_ms, commands), _ = bench.raft.entries[1]
    assert (now_ms, commands) == (1_000, [])
    # While this entry is in flight, the deadline needs no second entry.
    bench.raft.sync(bench.proposer)
    await turn()
    assert len(bench.raft.entries) == 2


async def test_nothing_is_proposed_before_a_deadline(bench):
    bench.core.deadline_ms = 1_001
    bench.proposer.wake()
    await turn()
    assert len(bench.raft.entries) == 1


async def test_the_deadline_timer_wakes_the_proposer(bench):
    bench.proposer.submit(command())
    await turn()
    bench.core.deadline_ms = 1_005
    bench.raft.apply(1)
    await turn()
    assert len(bench.raft.entries) == 2, "the deadline is not reached"
    bench.clock.time_ms = 1_005
    await turns_until(lambda: len(bench.raft.entries) == 3)


async def test_the_proposer_rests_after_an_empty_entry_that_leaves_work(bench, monkeypatch):
    now = asyncio.get_running_loop().time()
    bench.core.deadline_ms = 1_000
    bench.proposer.wake()
    await turn()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now + 0.02)
    bench.raft.apply(1)
    await turn()
    assert len(bench.raft.entries) == 2, "the other half of the time is for other clients"
    bench.proposer.submit(command())
    await turn()
    assert bench.names(2) == ["s"], "a command does not wait"
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now + 0.05)
    bench.raft.apply(2)
    await turn()
    assert len(bench.raft.entries) == 4
