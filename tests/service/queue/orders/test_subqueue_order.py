"""The order of sub-queues equals a naive order, with any part of the order in memory."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from taskraft_service.queue.entities.rates import SubqueueRates
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.candidates import OfTypes
from taskraft_service.queue.orders.plain_order import TypedOrders
from taskraft_service.queue.orders.subqueue_offers import STRIDE
from taskraft_service.queue.orders.subqueue_order import SubqueueOrder
from taskraft_service.queue.store.keys import subqueue_prefix, waiting_key
from tests.service.queue.memory_store import MemoryStore

NUMBER = 7
NOW = 1_000
LIMITS = Limits(
    head_entries_max=3, subqueue_entries_max=2, subqueues_max=2, types_max=1, type_entries_max=2
)
NAMES = st.sampled_from(("", "a", "ab", "b", "c"))


TYPES = st.sampled_from(("", "", "x", "y"))


def a_task(task_id, subqueue, lane=0, rank=0, type_=""):
    order = (lane, rank, task_id)
    return SimpleNamespace(id=task_id, subqueue=subqueue, order=order, type=type_)


def the_options(concurrency, weights):
    return TubeOptions(
        subqueue_concurrency=concurrency, subqueue_weights=tuple(sorted(weights.items()))
    )


def an_order(store, tasks, limits=LIMITS, *, concurrency, weights, stored=False):
    options = the_options(concurrency, weights)
    types = TypedOrders(NUMBER, store, limits, tasks, stored=stored)
    rates = SubqueueRates(NUMBER, store, options)
    return SubqueueOrder(NUMBER, store, limits, types, rates, options, stored=stored)


def pop_least(order):
    return next(iter(order.pop_many(1)), None)


class SubqueueMachine(RuleBasedStateMachine):
    """The order and its reference in lists; ``collect`` writes positions like the queue."""

    @initialize(concurrency=st.integers(1, 3), weights=st.sampled_from(({}, {}, {"a": 3, "b": 2})))
    def begin(self, concurrency, weights):
        self.concurrency, self.weights = concurrency, weights
        self.store = MemoryStore()
        self.ready, self.taken, self.turns = {}, {}, {}
        self.time = self.last_id = 0
        self.stored = {}
        self.order = self.opened(is_stored=False)

    def opened(self, *, is_stored):
        return an_order(
            self.store,
            self.ready,
            concurrency=self.concurrency,
            weights=self.weights,
            stored=is_stored,
        )

    # ---------------------------------------------------------------------------------- the model

    def settle_turns(self):
        """Give turns to sub-queues that begin to offer a task, and remove the other turns."""
        for name in {task.subqueue for task in self.ready.values()} | set(self.turns):
            if self.first(name) is None:
                self.turns.pop(name, None)
            else:
                self.turns.setdefault(name, self.time + STRIDE // self.weights.get(name, 1))

    def first(self, name):
        if sum(task.subqueue == name for task in self.taken.values()) >= self.concurrency:
            return None
        own = [task.order for task in self.ready.values() if task.subqueue == name]
        return min(own, default=None)

    def offers(self, types=()):
        found = []
        for name in {task.subqueue for task in self.ready.values()}:
            first = self.first(name)
            if first is not None and (not types or self.ready[first[-1]].type in types):
                found.append((self.turns[name], *first[1:]) if self.weights else first)
        return sorted(found)

    # ------------------------------------------------------------------------------------- actions

    @rule(name=NAMES, lane=st.integers(-1, 0), rank=st.integers(0, 2), type_=TYPES)
    def put(self, name, lane, rank, type_):
        self.last_id += 1
        task = a_task(self.last_id, name, lane, rank, type_)
        self.ready[task.id] = task
        self.order.add(task)
        self.settle_turns()

    @rule(names=st.lists(NAMES, min_size=3, max_size=9))
    def put_many(self, names):
        for name in names:
            self.put(name, 0, 0, "")

    @rule(most=st.integers(1, 4))
    def take(self, most):
        offers = self.offers()
        entries = self.order.pop_many(most)
        assert list(entries) == offers[: len(entries)]
        assert bool(entries) == bool(offers)
        tasks = [self.ready[entry[-1]] for entry in entries]
        self.order.claim_withdrawn(tasks, NOW)
        for task in tasks:
            self.note_claim(task)

    def claim(self, task):
        self.order.claim(task, NOW)
        self.note_claim(task)

    def note_claim(self, task):
        was_offered = self.first(task.subqueue) == task.order
        self.ready.pop(task.id, None)
        self.taken[task.id] = task
        if was_offered and self.weights:
            self.time = max(self.time, self.turns.pop(task.subqueue))
        self.settle_turns()

    @rule(aside=st.integers(1, 3))
    def take_past_some(self, aside):
        """Skip the first offers, as a filter does, and take a later offer."""
        offers = self.offers()
        withdrawn = [entry for _ in range(aside) if (entry := pop_least(self.order))]
        assert withdrawn == offers[:aside]
        self.take_next(offers[aside:])
        for entry in withdrawn:
            self.order.restore(entry)

    def take_next(self, offers):
        entry = pop_least(self.order)
        assert entry == (offers[0] if offers else None)
        if entry is not None:
            self.claim(self.ready[entry[-1]])

    @rule(types=st.sampled_from((("x",), ("y",), ("y", "x"), ("none",))))
    def take_of_types(self, types):
        offers = self.offers(types)
        entry = OfTypes(self.order.types.ask(types)).least()
        assert entry == (offers[0] if offers else None)
        if entry is not None:
            self.claim(self.ready[entry[-1]])

    @rule(place=st.integers(0, 20), type_=TYPES)
    def change_type(self, place, type_):
        """Replace a READY task as a producer does; the task returns to the same position."""
        if self.ready:
            task = sorted(self.ready.values(), key=lambda task: task.id)[place % len(self.ready)]
            self.order.discard(task)
            del self.ready[task.id]
            self.settle_turns()
            task.type = type_
            self.ready[task.id] = task
            self.order.add(task)
            self.settle_turns()

    @rule(place=st.integers(0, 20))
    def end(self, place):
        """Delete a READY task, or let its TTL end."""
        if self.ready:
            task = sorted(self.ready.values(), key=lambda task: task.id)[place % len(self.ready)]
            self.order.discard(task)
            del self.ready[task.id]
            self.settle_turns()

    @rule(place=st.integers(0, 20), comes_back=st.booleans())
    def give_back(self, place, comes_back):
        if self.taken:
            task = sorted(self.taken.values(), key=lambda task: task.id)[place % len(self.taken)]
            del self.taken[task.id]
            self.order.free([task])
            self.settle_turns()
            if comes_back:
                self.ready[task.id] = task
                self.order.add(task)
                self.settle_turns()

    @rule(concurrency=st.integers(1, 3))
    def configure(self, concurrency):
        self.concurrency = concurrency
        self.order.configure(the_options(concurrency, self.weights), NOW)
        self.settle_turns()

    @rule()
    def collect(self):
        places = {
            waiting_key(subqueue_prefix(NUMBER, task.subqueue), task.order): b""
            for task in self.ready.values()
        }
        writes = [(key, None) for key in self.stored if key not in places]
        writes += [(key, b"") for key in places if key not in self.stored]
        self.stored = places
        self.order.collect(writes, len(self.ready))
        self.store.write(writes)

    @rule()
    def reopen(self):
        self.collect()
        offers, time, has_types = self.order.offers, self.order.time, self.order.types.has_any
        self.order = self.opened(is_stored=bool(self.ready))
        self.order.restore_state(offers, time)
        self.order.types.has_any = has_types
        for task in self.taken.values():
            self.order.reopen(task)

    # -------------------------------------------------------------------------------- invariants

    @invariant()
    def offers_the_same(self):
        if hasattr(self, "order"):
            offers = self.offers()
            assert list(self.order.ordered()) == offers
            for name in ("x", "y"):
                typed = OfTypes(self.order.types.ask([name]))
                assert list(typed.ordered()) == self.offers([name])
            assert self.order.offered(len(self.ready)) == len(offers)
            assert self.order.time == self.time

    @invariant()
    def memory_is_bounded(self):
        if hasattr(self, "order"):
            memory = self.order._memory
            assert len(memory._warm) <= LIMITS.subqueues_max or memory._touched
            busy = {task.subqueue for task in self.taken.values()}
            idle = set(memory._known) - busy
            touched = {subqueue.name for subqueue in memory._touched}
            assert len(idle - touched) <= LIMITS.subqueues_max


SubqueueMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None
)
TestSubqueuesAgainstNaiveOnes = SubqueueMachine.TestCase


def test_a_sub_queue_of_weight_three_is_served_three_times_as_often():
    order = an_order(MemoryStore(), {}, Limits(), concurrency=1, weights={"heavy": 3})
    tasks = {number: a_task(number, ("heavy", "light")[number % 2]) for number in range(1, 41)}
    order.add_all(list(tasks.values()))
    served = []
    for _ in range(20):
        task = tasks[pop_least(order)[-1]]
        order.claim(task, NOW)
        order.free([task])
        served.append(task.subqueue)
    assert served.count("heavy") == 15
    assert "light" in served[:4]


def test_a_sub_queue_that_returns_has_saved_no_share():
    order = an_order(MemoryStore(), {}, Limits(), concurrency=9, weights={"x": 1})
    steady = {number: a_task(number, "steady") for number in range(1, 30)}
    order.add_all(list(steady.values()))
    for _ in range(20):
        order.claim(steady[pop_least(order)[-1]], NOW)
        order.free([steady[1]])
    late = {number: a_task(number, "late") for number in range(50, 60)}
    order.add_all(list(late.values()))
    both = steady | late
    served = []
    for _ in range(6):
        task = both[pop_least(order)[-1]]
        order.claim(task, NOW)
        order.free([task])
        served.append(task.subqueue)
    assert served.count("late") == 3
