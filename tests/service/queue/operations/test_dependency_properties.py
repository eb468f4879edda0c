"""Dependencies against a naive model: every dependent learns of the end of its dependencies."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from taskraft_service.queue.entities.new_task import (
    Dependencies,
    ItemReference,
    NewTask,
    TaskReference,
)
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import OnDependencyFailure
from taskraft_service.queue.entities.tube_options import OnAck, TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.admin import Restart
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.cancel import Cancel
from taskraft_service.queue.operations.groups import CreateGroup, StartGroup
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.settlements import Ack, Release, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, TruncateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore

SMALL = Limits(
    head_entries_max=2,
    resident_bytes_max=1,
    steps_alone_max=3,
    steps_beside_max=2,
    steps_max=3,
)
TUBES = ("plain", "kept", "other")
FINISHED = (State.DONE, State.ZOMBIE)
MISSES_FROM = 56
"""Numbers from which on a place is used as it is; smaller numbers select a task of the tube."""
places = st.tuples(st.sampled_from(TUBES), st.integers(1, 63))


class Waiting:
    """A dependent in the model; ``group`` says whether its group holds the dependent too."""

    def __init__(self, on, runs, group):
        self.open = set(on)
        self.runs = runs
        self.group = group


class DependencyMachine(RuleBasedStateMachine):
    """Tasks of three tubes, with all effects of a command applied before the next command.

    The model knows the open dependencies of each dependent. An acknowledged dependency is removed
    from them. Any other end of a dependency, and its burial, cancels the dependent, and so ends the
    dependent too.
    """

    leases = Bundle("leases")

    @initialize()
    def begin(self):
        self.store = MemoryStore()
        self.queue = Queue(self.store, SMALL)
        self.index = 0
        self.now_ms = 1_000
        self.waiting = {}
        """The HELD tasks by tube and id."""
        self.is_started = False
        self.do(Startup(1, 0, "feed", 2), CreateGroup("g"))
        self.do(CreateTube("keeper", TubeKind.FIFO, TubeOptions()))
        self.do(Put("keeper", [NewTask(b"x", 1, group="g")]))  # This task keeps the group open.
        for name in TUBES:
            on_ack = OnAck.KEEP if name == "kept" else OnAck.REMOVE
            self.do(CreateTube(name, TubeKind.FIFOTTL, TubeOptions(on_ack=on_ack)))
            self.do(Put(name, [NewTask(b"x", 1)] * 2))

    def do(self, *commands):
        """Apply one entry, and further entries until nothing is left to do."""
        self.index += 1
        self.now_ms += 1
        results = self.queue.apply(self.index, self.now_ms, commands)
        while self.queue.next_deadline_ms() == self.now_ms:
            self.index += 1
            self.queue.apply(self.index, self.now_ms, ())
        return results

    def state(self, place):
        (task,) = self.queue.get_tasks(place[0], [place[1]])
        return State.GONE if task is None else task.state

    def aimed(self, place):
        """Return a place with a task, unless the tube is empty or the place is to miss."""
        tube, number = place
        there = [task.id for task in self.queue.list_tasks(tube, (), 0, 100)]
        return (tube, there[number % len(there)]) if there and number < MISSES_FROM else place

    def ended(self, place, is_well):
        """Tell the model that a task has ended or was buried."""
        self.waiting.pop(place, None)
        for other, waiting in list(self.waiting.items()):
            if place in waiting.open:
                waiting.open.discard(place)
                if not is_well and not waiting.runs:
                    self.ended(other, is_well=False)

    @rule(tube=st.sampled_from(TUBES), on=st.lists(places, max_size=3), runs=st.booleans())
    def put(self, tube, on, runs):
        self.put_one(tube, on, runs, group=False)

    @rule(tube=st.sampled_from(TUBES), on=st.lists(places, min_size=1, max_size=2))
    def put_into_group(self, tube, on):
        self.put_one(tube, on, runs=False, group=True)

    def put_one(self, tube, on, runs, *, group):
        on = [*map(self.aimed, on)]
        states = {place: self.state(place) for place in on}
        on_failure = OnDependencyFailure.RUN if runs else OnDependencyFailure.CANCEL
        after = Dependencies(tuple(TaskReference(*place) for place in on), on_failure)
        new = NewTask(b"x", 1, dependencies=after if on else None, group="g" if group else "")
        (result,) = self.do(Put(tube, [new]))
        if State.GONE in states.values():
            assert [one.refusal.reason for one in result.refused] == [Reason.DEPENDENCY_NOT_FOUND]
            return
        (task_id,) = result.ids
        answered = (*FINISHED, State.BURIED)
        still_open = {place for place, state in states.items() if state not in answered}
        if runs or State.BURIED not in states.values():
            self.waiting[tube, task_id] = Waiting(still_open, runs, group)

    @rule(first=st.sampled_from(TUBES), second=st.sampled_from(TUBES), on=places)
    def put_a_chain(self, first, second, on):
        """Put a batch: one item depends on a task, and two items depend on the previous item."""
        on = self.aimed(on)
        there = self.state(on)
        head = Dependencies((TaskReference(*on),))
        links = [Dependencies((ItemReference(item),)) for item in (0, 1)]
        puts = [
            Put(tube, [NewTask(b"x", 1, dependencies=one) for one in after])
            for tube, after in ((first, [head]), (second, links))
        ]
        (result,) = self.do(ExecuteBatch(puts))
        if there is State.GONE:
            assert result.reason is Reason.DEPENDENCY_NOT_FOUND
            return
        if there is State.BURIED:
            return
        (one,), (two, three) = (put.ids for put in result.results)
        self.waiting[first, one] = Waiting([on] if there not in FINISHED else [], False, False)
        self.waiting[second, two] = Waiting([(first, one)], False, False)
        self.waiting[second, three] = Waiting([(second, two)], False, False)

    @rule(target=leases, tube=st.sampled_from(TUBES), tasks=st.integers(1, 3))
    def take(self, tube, tasks):
        (result,) = self.do(Take([tube], tasks_max=tasks))
        for task in result.tasks:
            self.waiting.pop((task.tube, task.id), None)
        return [(task.token, (task.tube, task.id)) for task in result.tasks]

    @rule(leases=leases)
    def ack(self, leases):
        (result,) = self.do(Settle([Ack([token for token, _ in leases])]))
        stale = {item.item for item in result.refused}
        for item, (_, place) in enumerate(leases):
            if item not in stale:
                self.ended(place, is_well=True)

    @rule(leases=leases, target_tube=st.sampled_from(("", "other")))
    def release(self, leases, target_tube):
        """Release a task, perhaps to another tube; a task with a cancel request ends."""
        for token, place in leases:
            moves = target_tube and place[0] != target_tube
            last = self.queue.last_id(target_tube) if moves else 0
            (result,) = self.do(Settle([Release([token], move_to=target_tube if moves else "")]))
            if result.refused or self.state(place) is not State.GONE:
                continue
            if not moves or self.queue.last_id(target_tube) == last:
                self.ended(place, is_well=False)
                continue
            for waiting in self.waiting.values():
                if place in waiting.open:
                    waiting.open.discard(place)
                    waiting.open.add((target_tube, last + 1))

    @rule(place=places, how=st.sampled_from([Delete, Cancel]))
    def remove(self, place, how):
        place = self.aimed(place)
        before = self.state(place)
        (result,) = self.do(how(place[0], ByIds([place[1]])))
        if self.state(place) is State.GONE and before not in (State.GONE, *FINISHED):
            assert not result.refused
            self.ended(place, is_well=False)

    @rule(place=places)
    def bury(self, place):
        place = self.aimed(place)
        before = self.state(place)
        self.do(Bury(place[0], ByIds([place[1]])))
        if self.state(place) is State.BURIED is not before:
            self.ended(place, is_well=False)

    @rule(place=places, how=st.sampled_from([Kick, Restart]))
    def bring_elsewhere(self, place, how):
        place = self.aimed(place)
        chosen = ByIds([place[1]])
        self.do(Kick(place[0], selector=chosen) if how is Kick else how(place[0], chosen))
        waiting = self.waiting.get(place)
        if waiting is not None and self.state(place) is not State.HELD:
            del self.waiting[place]

    @rule(tube=st.sampled_from(TUBES), sure=st.integers(0, 3))
    def truncate(self, tube, sure):
        if sure:
            return
        ids = range(1, self.queue.last_id(tube) + 1)
        gone = [
            (tube, one) for one in ids if self.state((tube, one)) not in (State.GONE, *FINISHED)
        ]
        self.do(TruncateTube(tube))
        for place in gone:
            self.waiting.pop(place, None)
        for place in gone:
            self.ended(place, is_well=False)

    @rule()
    def start_group(self):
        self.do(StartGroup("g"))
        self.is_started = True

    @rule()
    def crash_after_a_batch(self):
        """Collect and reopen: the store has the whole state, as the digest shows."""
        digest = self.queue.digest()
        self.store.write(self.queue.collect_writes())
        assert self.queue.digest() == digest
        assert Queue(self.store.copy(), SMALL).digest() == digest
        self.queue = Queue(self.store, SMALL)

    @invariant()
    def a_task_is_held_while_a_group_or_dependency_holds_it(self):
        if not self.index:
            return
        for name in TUBES:
            for task in self.queue.list_tasks(name, (), 0, 10_000):
                waiting = self.waiting.get((name, task.id))
                is_held = waiting is not None and bool(
                    waiting.open or (waiting.group and not self.is_started)
                )
                assert (task.state is State.HELD) is is_held, (name, task.id)
                if is_held:
                    shown = task.extras.waiting
                    assert len(shown.open if shown else ()) == len(waiting.open)
        for place in self.waiting:
            assert self.state(place) is not State.GONE

    @invariant()
    def the_index_contains_exactly_the_waiting_tasks(self):
        if self.index:
            state = self.queue._state
            assert not state.dependents.has_endings
            waits = sum(len(waiting.open) for waiting in self.waiting.values())
            assert len(list(state.dependents.members.keys())) == waits


DependencyMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None
)
TestDependencies = DependencyMachine.TestCase
