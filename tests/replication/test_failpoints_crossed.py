"""Die at every named failpoint, by a kill and by a power loss: no promise is forgotten.

One member lives through everything that a member does: it is founded, votes, appends, is corrected
by a new leader, applies, flushes, trims, changes its membership, takes a snapshot, leads, gives a
snapshot, and closes. Each name in the table of steps is crossed on the way, or this fails.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from replication.core.confchange import ConfChange, MemberChange, MemberChangeKind, encode
from replication.core.types import (
    ConfState,
    Entry,
    EntryKind,
    LogIndex,
    MemberId,
    MessageKind,
    SnapshotMeta,
    Term,
)
from replication.storage.failpoints import NAMES, Action, Failpoints, Rule
from tests.replication.counting_machine import CountingMachine
from tests.replication.promising_member import FOUNDERS, Promises, PromisingMember
from tests.sim.disk import Crashed, SimDisk

STATE_WRITES = frozenset({"state.before_write", "state.after_write"})
ELSEWHERE = frozenset(name for name in NAMES if name.startswith("pointer.") or name in STATE_WRITES)
"""Steps of the state machine's own files: crossed in tests/service/test_failpoints_killed.py."""

SNAPSHOT_AT = 300

Step = Callable[[PromisingMember], None]


def entries(first: int, last: int, term: int) -> list[Entry]:
    return [
        Entry(Term(term), LogIndex(index), b"%d of term %d " % (index, term) * 6)
        for index in range(first, last + 1)
    ]


def committed() -> list[Entry]:
    """Return the entries that end up committed, whatever crashes in between."""
    change = encode(ConfChange((MemberChange(MemberChangeKind.ADD_LEARNER, MemberId(4)),)))
    return [
        Entry(Term(1), LogIndex(1)),
        *entries(2, 45, 2),
        *entries(46, 89, 3),
        Entry(Term(3), LogIndex(90), change, EntryKind.CONF_CHANGE_V2),
        *entries(91, SNAPSHOT_AT, 3),
        *entries(SNAPSHOT_AT + 1, SNAPSHOT_AT + 20, 3),
    ]


COMMITTED = committed()


def state_at(index: int) -> CountingMachine:
    machine = CountingMachine()
    machine.apply(COMMITTED[:index])
    return machine


def vote(member: PromisingMember) -> None:
    member.hear(MessageKind.VOTE, 2, 2, index=LogIndex(1), log_term=Term(1))


def follow(member: PromisingMember) -> None:
    for first in range(2, 46, 4):
        member.append(2, 2, COMMITTED[first - 1 : first + 3], min(first - 1, 40))


def be_corrected(member: PromisingMember) -> None:
    member.append(2, 2, entries(46, 46, 2), 40)
    member.append(2, 2, entries(47, 80, 2), 40)
    member.storage.sync_mark()
    member.append(3, 3, COMMITTED[45:60], 60)


def change_membership(member: PromisingMember) -> None:
    for first in range(61, 120, 10):
        member.append(3, 3, COMMITTED[first - 1 : first + 9], first - 1)


def be_caught_up(member: PromisingMember) -> None:
    conf_state = ConfState(FOUNDERS.voters, (MemberId(4),))
    meta = SnapshotMeta(LogIndex(SNAPSHOT_AT), Term(3), conf_state)
    content = state_at(SNAPSHOT_AT).open_snapshot()
    member.take_snapshot(3, 3, meta, content.read(0, 1 << 20))
    member.append(3, 3, COMMITTED[SNAPSHOT_AT:], SNAPSHOT_AT + 20)


def lead(member: PromisingMember) -> None:
    member.driver.campaign()
    member.settle()
    member.hear(MessageKind.PRE_VOTE_REPLY, 2, 4)
    member.hear(MessageKind.VOTE_REPLY, 2, 4)
    last = member.storage.view.last_index()
    member.hear(MessageKind.APPEND_REPLY, 2, 4, index=last)
    # This one has nothing: the log does not reach back so far.
    member.hear(
        MessageKind.APPEND_REPLY, 3, 4, index=LogIndex(last - 1), reject=True, log_term=Term(0)
    )
    ((message, _),) = member.snapshots
    member.driver.snapshot_sent(message.to, ok=True)
    member.settle()


STORY: tuple[Step, ...] = (
    vote,
    follow,
    be_corrected,
    change_membership,
    be_caught_up,
    lead,
    PromisingMember.close,
)


class Fate:
    """A disk, a state, what was promised, and when the member dies."""

    def __init__(self, seed: int, rules: tuple[Rule, ...] = ()) -> None:
        self.disk = SimDisk(Random(seed))
        self.machine = CountingMachine()
        self.promises = Promises()
        self.failpoints = Failpoints(rules, self.die)

    def die(self, rule: Rule) -> None:
        # The process is gone: nothing that it would still do, closing a file say, happens.
        self.disk.crash_at = 0
        raise Crashed(rule.name)

    def begin(self, failpoints: Failpoints) -> PromisingMember:
        return PromisingMember(self.disk, self.machine, failpoints, self.promises)

    def live(self) -> bool:
        """Live the whole story; tell whether the end was reached."""
        try:
            member = self.begin(self.failpoints)
            for step in STORY:
                step(member)
        except Crashed:
            return False
        return True

    def restart(self, *, power: bool, failpoints: Failpoints | None = None) -> PromisingMember:
        if power:
            self.disk.lose_power()
        self.disk.recover()
        self.machine = self.machine.after_crash()
        return self.begin(failpoints or Failpoints())

    def check(self, member: PromisingMember) -> None:
        """Compare what is there with what was promised."""
        hard_state = member.driver.hard_state
        assert hard_state.term >= self.promises.term
        if hard_state.term in self.promises.votes:
            assert hard_state.vote == self.promises.votes[hard_state.term]
        view = member.storage.view
        for index, entry in self.promises.entries.items():
            if index >= view.first_index():
                assert view.entries(index, LogIndex(index + 1), 1) == [entry]
            else:
                assert index <= member.machine.applied_index, "trimmed, but not in the state"

    def catch_up(self, member: PromisingMember) -> None:
        """Let a later leader send what is committed; the state must come out the same."""
        missing = COMMITTED[member.driver.core.commit_index :]
        if missing:
            member.append(3, 9, missing, len(COMMITTED))
        member.request_pump()
        member.settle()


def crossings() -> dict[str, int]:
    """Return how often the story crosses each failpoint."""
    fate = Fate(0)
    assert fate.live()
    return fate.failpoints.crossings


CROSSINGS = crossings()


def test_the_story_crosses_every_failpoint():
    assert set(CROSSINGS) == NAMES - ELSEWHERE


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("name", sorted(NAMES - ELSEWHERE))
def test_no_promise_is_forgotten_at(name, power):
    count = CROSSINGS[name]
    for crossing in sorted({1, (count + 1) // 2, count}):
        for seed in range(3 if power else 1):
            fate = die_at(name, crossing, seed)
            member = fate.restart(power=power)
            fate.check(member)
            # Again, before anything is synced: a recovery must not rest on the page cache.
            member = fate.restart(power=True)
            fate.check(member)
            fate.catch_up(member)
            assert member.machine.digest() == state_at(len(COMMITTED)).digest()


def die_at(name: str, crossing: int, seed: int) -> Fate:
    """Return what is left of a life that ended there."""
    fate = Fate(seed, (Rule(name, Action.KILL, 0, crossing, crossing),))
    assert not fate.live()
    return fate


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize(
    "name",
    ["append.before_sync", "append.before_truncate", "segment.after_rename", "state.after_switch"],
)
def test_a_crash_in_the_middle_of_a_recovery_forgets_nothing_either(name, power):
    passed = Failpoints()
    fate = die_at(name, 1, 1)
    fate.restart(power=power, failpoints=passed)
    assert "incarnation.before_rename" in passed.crossings
    for again in passed.crossings:
        fate = die_at(name, 1, 1)
        dying = Failpoints((Rule(again, Action.KILL),), fate.die)
        with pytest.raises(Crashed):
            fate.restart(power=power, failpoints=dying)
        fate.check(fate.restart(power=power))
