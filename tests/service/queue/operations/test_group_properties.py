"""Groups against a naive model: the counts and the end are right after every command."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from taskraft_service.queue.entities.group import GroupState, GroupTask
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.groups import (
    CancelGroup,
    CreateGroup,
    GroupResult,
    StartGroup,
)
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.settlements import Ack, BuryTaken, Release, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, TruncateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore

SMALL = Limits(
    head_entries_max=2, resident_bytes_max=1, steps_alone_max=3, steps_beside_max=2, steps_max=2
)
OPEN = (State.READY, State.DELAYED, State.TAKEN, State.HELD)


class GroupMachine(RuleBasedStateMachine):
    """One group with tasks in two tubes; the model knows the end of each member."""

    tokens = Bundle("tokens")

    @initialize(only=st.booleans())
    def begin(self, only):
        self.store = MemoryStore()
        self.queue = Queue(self.store, SMALL)
        self.index = 0
        self.now_ms = 1_000
        self.fate = {}
        """The end of each member by tube and id; None while it lives."""
        self.lost = 0
        self.only = only
        tubes = [CreateTube(name, TubeKind.FIFOTTL, TubeOptions()) for name in ("a", "b", "ends")]
        end, abort = GroupTask("ends", b"end"), GroupTask("ends", b"abort")
        self.do(Startup(1, 0, "feed", 2), *tubes, CreateGroup("g", end, abort, only))
        for tube in "ab":
            self.put_some(tube, 4, 0)

    def do(self, *commands):
        self.index += 1
        self.now_ms += 1
        return self.queue.apply(self.index, self.now_ms, commands)

    @property
    def group(self):
        return self.queue.group("g")

    @rule(tube=st.sampled_from("ab"), tasks=st.integers(1, 5), delay=st.sampled_from([0, 5]))
    def put(self, tube, tasks, delay):
        self.put_some(tube, tasks, delay)

    def put_some(self, tube, tasks, delay):
        is_open = self.group.state in (GroupState.HELD, GroupState.STARTED)
        new = NewTask(b"x", 1, delay_ms=delay, group="g")
        (result,) = self.do(Put(tube, [new] * tasks))
        for task_id in result.ids:
            assert (task_id > 0) == is_open
            if task_id:
                self.fate[tube, task_id] = None

    @rule()
    def start(self):
        (result,) = self.do(StartGroup("g"))
        assert isinstance(result, (GroupResult, Refusal))

    @rule(target=tokens, tube=st.sampled_from("ab"), tasks=st.integers(1, 3))
    def take(self, tube, tasks):
        (result,) = self.do(Take([tube], tasks_max=tasks))
        return [(task.token, task.tube, task.id) for task in result.tasks]

    def settle(self, leases, action, fate):
        for token, tube, task_id in leases:
            had_ended = self.group.ended_ms
            (result,) = self.do(Settle([action([token])]))
            if not result.refused and not had_ended:
                self.fate[tube, task_id] = fate

    @rule(leases=tokens)
    def ack(self, leases):
        self.settle(leases, Ack, "processed")

    @rule(leases=tokens)
    def release(self, leases):
        self.settle(leases, Release, None)

    @rule(leases=tokens)
    def bury_taken(self, leases):
        self.settle(leases, BuryTaken, "failed")

    @rule(tube=st.sampled_from("ab"), task_id=st.integers(1, 5))
    def bury(self, tube, task_id):
        before = self.state(tube, task_id)
        (result,) = self.do(Bury(tube, ByIds([task_id])))
        if result.count:
            assert before in OPEN
            self.fate[tube, task_id] = "failed"

    @rule(tube=st.sampled_from("ab"), task_id=st.integers(1, 5))
    def kick(self, tube, task_id):
        (result,) = self.do(Kick(tube, selector=ByIds([task_id])))
        if result.count and not self.group.ended_ms:
            self.fate[tube, task_id] = None

    @rule(tube=st.sampled_from("ab"), task_id=st.integers(1, 5))
    def delete(self, tube, task_id):
        had_ended = self.group.ended_ms
        (result,) = self.do(Delete(tube, ByIds([task_id])))
        if result.count and not had_ended:
            self.fate[tube, task_id] = "cancelled"

    @rule(tube=st.sampled_from("ab"))
    def truncate(self, tube):
        had_ended = self.group.ended_ms
        self.do(TruncateTube(tube))
        while self.queue.next_deadline_ms() == self.now_ms:
            self.do()
        if had_ended:
            return
        waiting = [member for member, fate in self.fate.items() if fate is None]
        last = max((task_id for name, task_id in waiting if name == tube), default=0)
        behind = []
        for member, fate in self.fate.items():
            if member[0] == tube and fate in (None, "failed"):
                self.fate[member] = "cancelled"
                if fate == "failed" and member[1] > last:
                    behind.append(member)
        if self.group.ended_ms:
            # The tasks are removed in steps, in the order of their ids. The last open task ends the
            # group, which keeps the BURIED tasks of later steps as failed.
            kept = self.group.failed - list(self.fate.values()).count("failed")
            assert 0 <= kept <= len(behind)
            for member in sorted(behind)[len(behind) - kept :]:
                self.fate[member] = "failed"

    @rule(sure=st.integers(0, 3))
    def cancel(self, sure):
        if sure:
            return  # Cancel rarely, because a cancellation ends the group.
        before = self.group
        self.do(CancelGroup("g", revoke=True))
        while self.queue.next_deadline_ms() == self.now_ms:
            self.do()
        if before.state in (GroupState.HELD, GroupState.STARTED):
            for member, fate in self.fate.items():
                if fate is None:
                    self.fate[member] = "cancelled"

    @rule()
    def crash_after_a_batch(self):
        """Collect and reopen: the store has the whole state, as the digest shows."""
        self.store.write(self.queue.collect_writes())
        again = Queue(self.store.copy(), SMALL)
        assert again.digest() == self.queue.digest()
        self.queue = Queue(self.store, SMALL)

    def state(self, tube, task_id):
        (task,) = self.queue.get_tasks(tube, [task_id])
        return State.GONE if task is None else task.state

    @invariant()
    def counts_match_the_members(self):
        if not self.index:
            return
        group = self.group
        fates = list(self.fate.values())
        assert group.open == fates.count(None)
        members = self.queue._state.groups.members.after(1, (0, 0))
        assert len(list(members)) == group.open
        for name in ("processed", "failed", "cancelled"):
            assert getattr(group, name) == fates.count(name), name

    @invariant()
    def the_group_ends_once_with_the_right_task(self):
        if not self.index:
            return
        group = self.group
        ends = self.queue.list_tasks("ends", (), 0, 9)
        is_going = group.state is GroupState.HELD or self.queue.next_deadline_ms() == self.now_ms
        if group.ended_ms:
            ill = group.failed or group.cancelled
            is_aborted = group.state is GroupState.CANCELLED or (self.only and ill)
            assert [task.body for task in ends] == [b"abort" if is_aborted else b"end"]
            assert group.open == 0
        else:
            assert ends == []
            assert group.open > 0 or is_going


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestGroups = GroupMachine.TestCase
