"""Die at every named failpoint, by a kill and by a power loss: no promise is forgotten.

One member runs through the whole story on a simulated disk. The test fails if the story does not
cross every failpoint.
"""

from __future__ import annotations

from random import Random

import pytest

from taskraft_replication.errors import MemberRemoved
from taskraft_replication.storage.checked_file import read_checked, write_checked
from tests.failpoints.failing_filesystem import FailingFileSystem
from tests.failpoints.failpoints import NAMES, Action, Failpoints, Rule
from tests.replication.counting_machine import CountingMachine
from tests.replication.promising_member import Promises, PromisingMember
from tests.replication.whole_story import LAST, SNAPSHOT_AT, Story
from tests.sim.disk import Crashed, SimDisk

POINTER = "current"
STORE_STEPS = frozenset(
    f"state.{side}_{step}" for side in ("before", "after") for step in ("write", "sync")
)
ELSEWHERE = frozenset(
    name
    for name in NAMES
    if name.startswith(("pointer.", "removed.", "restoring.")) or name in STORE_STEPS
)
"""Failpoints at the end of a member and in the pointer of the queue's state. Tests below cover
these failpoints. Writes of the queue reach no disk before a flush, so a kill loses as much as a
power loss: see tests/service/process/test_failpoints_killed.py. The failpoints of a restore are in
tests/service/backup/test_interrupted_restore.py."""

STORY = Story(lambda index: b"%d " % index * 20)


def state_at(index: int) -> CountingMachine:
    machine = CountingMachine()
    machine.apply(STORY.committed[:index])
    return machine


STORY.snapshot = state_at(SNAPSHOT_AT).open_snapshot().read(0, 1 << 20)
EXPECTED = state_at(LAST).digest()


class Fate:
    """A disk, a state, the promises, and the failpoint at which the member dies."""

    def __init__(self, seed: int, rules: tuple[Rule, ...] = ()) -> None:
        self.disk = SimDisk(Random(seed))
        self.machine = CountingMachine()
        self.promises = Promises()
        self.failpoints = Failpoints(rules, self.die)

    def die(self, rule: Rule) -> None:
        # The process has ended: later actions, such as closing a file, do not happen.
        self.disk.crash_at = 0
        raise Crashed(rule.name)

    def begin(self, failpoints: Failpoints) -> PromisingMember:
        return PromisingMember(self.disk, self.machine, failpoints, self.promises)

    def live(self) -> bool:
        """Run all steps of the scenario; return whether the last step was reached."""
        try:
            member = self.begin(self.failpoints)
            STORY.tell(member)
        except Crashed:
            return False
        return True

    def restart(self, *, power: bool, failpoints: Failpoints | None = None) -> PromisingMember:
        if power:
            self.disk.lose_power()
        self.disk.recover()
        self.machine = self.machine.after_crash()
        return self.begin(failpoints or Failpoints())


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
def test_no_promise_is_forgotten_after_a_crash_at(name, power):
    count = CROSSINGS[name]
    for crossing in sorted({1, (count + 1) // 2, count}):
        for seed in range(3 if power else 1):
            fate = die_at(name, crossing, seed)
            member = fate.restart(power=power)
            fate.promises.check(member)
            # Restart again before any sync: a recovery must not rely on the page cache.
            member = fate.restart(power=True)
            fate.promises.check(member)
            STORY.finish(member)
            assert member.machine.digest() == EXPECTED


def die_at(name: str, crossing: int, seed: int) -> Fate:
    """Return the disk after a run that ended at a failpoint."""
    fate = Fate(seed, (Rule(name, Action.KILL, crossing, crossing),))
    assert not fate.live()
    return fate


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize(
    "name",
    ["append.before_sync", "append.before_truncate", "segment.after_rename", "state.after_switch"],
)
def test_a_crash_during_a_recovery_forgets_no_promise(name, power):
    passed = Failpoints()
    fate = die_at(name, 1, 1)
    fate.restart(power=power, failpoints=passed)
    assert "incarnation.before_rename" in passed.crossings
    for again in passed.crossings:
        fate = die_at(name, 1, 1)
        dying = Failpoints((Rule(again, Action.KILL),), fate.die)
        with pytest.raises(Crashed):
            fate.restart(power=power, failpoints=dying)
        fate.promises.check(fate.restart(power=power))


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("name", sorted(name for name in NAMES if name.startswith("removed.")))
def test_a_crash_while_a_removal_is_stored_leaves_it_stored_or_not(name, power):
    fate = Fate(1, (Rule(name, Action.KILL),))
    member = fate.begin(fate.failpoints)
    with pytest.raises(Crashed):
        member.storage.metadata.save_removed()
    try:
        fate.restart(power=power)
    except MemberRemoved:
        assert has_its_name(name)
    else:
        assert not has_its_name(name) or (power and name != "removed.after_sync_directory")


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("name", sorted(name for name in NAMES if name.startswith("pointer.")))
def test_a_crash_while_the_pointer_changes_leaves_the_old_or_the_new_state(name, power):
    for seed in range(5):
        fate = Fate(seed)
        write_checked(fate.disk, POINTER, {"generation": 1})
        dying = Failpoints((Rule(name, Action.KILL),), fate.die)
        with pytest.raises(Crashed):
            write_checked(FailingFileSystem(fate.disk, dying), POINTER, {"generation": 2})
        if power:
            fate.disk.lose_power()
        fate.disk.recover()
        generation = read_checked(fate.disk, POINTER)["generation"]
        if name == "pointer.after_sync_directory":
            assert generation == 2, "the switch was reported as done"
        elif not has_its_name(name):
            assert generation == 1
        else:
            assert generation == 2 or (power and generation == 1)


def has_its_name(point: str) -> bool:
    """Return whether a replaced file has been renamed at a failpoint."""
    step = point.partition(".")[2]
    return step in {"after_rename", "before_sync_directory", "after_sync_directory"}
