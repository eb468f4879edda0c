"""A take with a filter finds the matching tasks behind any number of other tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.queue.entities.new_task import NewTask, OnConflict
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.tube_driver import Placement
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.candidates import OfTypes
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.orders.plain_order import TypedOrders
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.store.keys import TASK, TYPED_ORDER, WAITING_ORDER
from tests.service.counted_calls import counted_calls
from tests.service.queue.memory_store import MemoryStore

OFTEN_SERVED = tuple(sorted((f"1/{place}", 2) for place in range(51)))
"""Weights of the sub-queues of a first put."""
BEFORE = 3_000
"""Number of entries before the searched task, several times the size of a head in memory."""
LIMITS = Limits(
    head_entries_max=64, type_entries_max=8, read_tasks_max=8, ahead_tasks_max=8, types_max=3
)


class ReadingStore(MemoryStore):
    """Counts the pairs that are read, by the first byte of their keys."""

    def __init__(self):
        super().__init__()
        self.read: dict[bytes, int] = {}

    def note(self, keys):
        for key in keys:
            self.read[key[:1]] = self.read.get(key[:1], 0) + 1

    def get(self, key):
        self.note([key])
        return super().get(key)

    def get_many(self, keys):
        self.note(keys)
        return super().get_many(keys)

    def scan(self, start, stop):
        for key, value in super().scan(start, stop):
            self.note([key])
            yield key, value


class Arrivals:
    """A tube driver that orders tasks by arrival and ignores priorities."""

    name = "arrivals"
    version = 1

    def refuse(self, arrival):
        return ""

    def place(self, arrival, memory):
        return Placement(0, b"")


class Desk:
    """A queue that is collected and reopened on demand."""

    def __init__(self, kind=TubeKind.FIFOTTL, limits=LIMITS, **options):
        self.store = ReadingStore()
        self.limits = limits
        self.queue = self.opened()
        self.index = 0
        driver = {"driver": "arrivals", "driver_version": 1} if kind is TubeKind.CUSTOM else {}
        options = TubeOptions(**options)
        tubes = [CreateTube(name, kind, options, **driver) for name in ("mail", "news")]
        self.do(Startup(1, 0, "feed", 1), *tubes)

    def opened(self):
        return Queue(self.store, self.limits, drivers={"arrivals": Arrivals()})

    def do(self, *commands):
        self.index += 1
        return self.queue.apply(self.index, self.index, commands)

    def put(self, count, tube="mail", **wishes):
        places = range(count)
        own = {"subqueue": f"{self.index}/"} if self.has_subqueues(tube) else {}
        new = [
            NewTask(b"", 0, **wishes, **{name: f"{own[name]}{place}" for name in own})
            for place in places
        ]
        (answer,) = self.do(Put(tube, new))
        return answer.ids

    def has_subqueues(self, tube):
        return self.queue._state.tubes[tube].has_subqueues

    def reopen(self):
        self.store.write(self.queue.collect_writes())
        self.queue = self.opened()
        self.store.read.clear()

    def taken(self, tubes=("mail",), tasks_max=9, **wishes):
        (answer,) = self.do(Take(tubes, tasks_max=tasks_max, **wishes))
        return [(task.tube, task.id) for task in answer.tasks], answer.cut_short

    def take(self, *tubes, **wishes):
        tasks, cut_short = self.taken(*tubes, **wishes)
        assert not cut_short
        return tasks

    def reads(self):
        return sum(self.store.read.values())


KINDS = pytest.mark.parametrize(
    ("kind", "options"),
    [
        (TubeKind.FIFOTTL, {}),
        (TubeKind.UTUBETTL, {}),
        (TubeKind.UTUBETTL, {"subqueue_weights": (("a", 2),)}),
    ],
    ids=["fifottl", "utubettl", "weights"],
)


@KINDS
@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "in memory"])
def test_a_task_of_a_type_is_found_behind_any_number_of_others(kind, options, is_stored):
    desk = Desk(kind, **options)
    desk.put(BEFORE, type="common")
    (first,) = desk.put(1, type="rare")
    desk.put(BEFORE)
    (second,) = desk.put(1, type="rare")
    if is_stored:
        desk.reopen()
    assert desk.take(types=["rare"]) == [("mail", first), ("mail", second)]
    assert desk.reads() < 40
    assert desk.take(types=["rare"]) == []
    assert len(desk.take(types=["common"])) == 9


def test_tasks_of_several_types_come_in_the_order_of_the_tube():
    desk = Desk()
    desk.put(BEFORE, type="other")
    ids = [
        desk.put(1, type=name, priority=rank)[0]
        for name, rank in zip("abcab", (0, 0, 0, -1, 0), strict=True)
    ]
    desk.reopen()
    assert desk.take(types=["b", "a", "b"]) == [("mail", ids[place]) for place in (3, 0, 1, 4)]
    assert desk.take(types=["a", "b"]) == []
    assert desk.take(types=["c", "", "none"]) == [("mail", ids[2])]


@KINDS
def test_a_take_of_many_types_does_not_look_at_each_type_for_each_task(kind, options):
    types = [f"type {number}" for number in range(64)]
    desk = Desk(kind, limits=Limits(), **options)
    ids = [task_id for name in types * 20 for task_id in desk.put(1, type=name)]
    take = Take(("mail",), tasks_max=1_000, types=types)
    with counted_calls() as counted:
        (answer,) = desk.do(take)
    assert [task.id for task in answer.tasks] == ids[:1_000]
    assert counted.calls < 80 * 1_000


@given(st.data())
def test_the_least_of_some_types_is_the_least_of_their_orders(data):
    """The orders spill and refill, and change in any way between two questions."""
    names = "abcd"
    limits = Limits(head_entries_max=4, type_entries_max=2)
    types = TypedOrders(1, MemoryStore(), limits, {}, stored=False)
    entries = st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(1, 30))
    type_of = {}

    def change():
        entry = data.draw(entries)
        if entry in type_of:
            types.discard(type_of.pop(entry), entry)
        else:
            type_of[entry] = data.draw(st.sampled_from(names))
            types.add(type_of[entry], entry)

    for _ in range(data.draw(st.integers(1, 20))):
        change()
    asked = types.ask(data.draw(st.sampled_from(("a", "abc", "abcd", "ca"))))
    of_types = OfTypes(asked)
    for _ in range(data.draw(st.integers(0, 30))):
        leasts = [order.least() for order in asked.orders]
        assert of_types.least() == min([one for one in leasts if one is not None], default=None)
        for _ in range(data.draw(st.integers(0, 3))):
            change()


def test_urgent_tasks_are_found_by_type_and_across_tubes():
    desk = Desk()
    desk.put(BEFORE, priority=5, type="a")
    desk.put(BEFORE, "news", priority=5, type="a")
    late = desk.put(2, priority=4, type="b")
    early = desk.put(2, "news", priority=3, type="b")
    desk.put(1, "news", priority=1, type="a")
    desk.reopen()
    wish = {"tubes": ("mail", "news"), "types": ["b"]}
    assert desk.take(**wish, priority_bound=3) == [("news", number) for number in early]
    assert desk.take(**wish, priority_bound=3) == []
    assert desk.take(**wish) == [("mail", number) for number in late]
    assert desk.reads() < 80


@pytest.mark.parametrize("types", [(), ("a",)], ids=["any", "of a type"])
def test_urgent_tasks_are_found_in_front_of_and_behind_all_others(types):
    desk = Desk()
    desk.put(BEFORE, priority=5, type="a")
    (back,) = desk.put(1, priority=1, type="a", position=Position.BACK)
    desk.put(2, priority=9, type="a", position=Position.BACK)
    (last,) = desk.put(1, priority=1, type="a", position=Position.BACK)
    desk.put(2, priority=9, type="a", position=Position.FRONT)
    desk.reopen()
    assert desk.take(types=types, priority_bound=4) == [("mail", back), ("mail", last)]
    assert desk.take(types=types, priority_bound=4) == []
    read_in_order = desk.store.read.get(TASK, 0)
    assert read_in_order < 40
    (urgent,) = desk.put(1, priority=2, type="a")
    assert desk.take(types=types, priority_bound=4) == [("mail", urgent)]


def test_a_take_without_an_urgent_task_reads_little():
    desk = Desk()
    desk.put(BEFORE, priority=5)
    desk.reopen()
    assert desk.take(priority_bound=4) == []
    assert desk.reads() <= LIMITS.head_entries_max


@pytest.mark.parametrize(
    ("kind", "options", "passed", "others"),
    [
        (TubeKind.FIFOTTL, {}, {"position": Position.FRONT}, {}),
        (TubeKind.FIFOTTL, {}, {"position": Position.BACK}, {"position": Position.BACK}),
        (TubeKind.UTUBETTL, {"subqueue_weights": OFTEN_SERVED}, {}, {}),
        (TubeKind.CUSTOM, {}, {}, {}),
    ],
    ids=["front", "back", "weights", "driver"],
)
@pytest.mark.parametrize("types", [(), ("a",)], ids=["any", "of a type"])
@pytest.mark.parametrize("is_stored", [False, True], ids=["fresh", "stored"])
def test_a_scan_is_limited_and_reports_that_it_stopped(
    kind, options, passed, others, types, is_stored
):
    desk = Desk(kind, replace(LIMITS, passed_max=50), **options)
    desk.put(51, priority=9, type="a", **passed)
    (urgent,) = desk.put(1, priority=1, type="a", **others)
    if is_stored:
        desk.reopen()
    assert desk.taken(priority_bound=4, types=types) == ([], True)
    desk.take(tasks_max=1)
    assert desk.taken(priority_bound=4, types=types) == ([("mail", urgent)], False)
    assert desk.taken(priority_bound=4, types=types) == ([], False)
    assert len(desk.take(tasks_max=99)) == 50


def test_each_tube_of_a_take_has_its_share_of_the_scan_budget():
    desk = Desk(limits=replace(LIMITS, passed_max=50))
    desk.put(26, priority=9, position=Position.FRONT)
    desk.put(25, "news", priority=9, position=Position.FRONT)
    desk.put(1, priority=1)
    (found,) = desk.put(1, "news", priority=2)
    wish = {"tubes": ("mail", "news"), "priority_bound": 4}
    assert desk.taken(**wish) == ([("news", found)], True)
    desk.take(tasks_max=1)
    assert desk.taken(**wish, tasks_max=1) == ([("mail", 27)], False)


def test_a_take_that_skips_nothing_uses_no_scan_budget():
    desk = Desk(limits=replace(LIMITS, passed_max=5))
    ids = desk.put(3, priority=1)
    desk.put(BEFORE, priority=9)
    desk.reopen()
    assert desk.taken(priority_bound=4) == ([("mail", number) for number in ids], False)
    desk.put(6, priority=9, position=Position.FRONT)
    assert desk.taken(priority_bound=4) == ([], True)


@KINDS
def test_a_task_whose_type_changes_leaves_the_order_of_its_old_type(kind, options):
    desk = Desk(kind, **options)
    places = {"subqueue": "one"} if desk.has_subqueues("mail") else {}
    new = NewTask(b"", 0, unique_key=("k",), on_conflict=OnConflict.REPLACE_IF_WAITING, **places)
    desk.do(Put("mail", [replace(new, type="old")]))
    desk.reopen()
    others = {"subqueue": "other"} if places else {}
    desk.do(Put("mail", [replace(new, type="new", **others)]))
    desk.reopen()
    stored = [key for key in desk.store.pairs if key[:1] in {TYPED_ORDER, WAITING_ORDER}]
    assert len(stored) == 1 + len(places)
    assert desk.take(types=["old"]) == []
    assert desk.take(types=["new"]) == [("mail", 1)]


def test_tubes_without_types_store_no_order_by_type():
    desk = Desk()
    desk.put(100)
    for name in "abcdef":
        assert desk.take(types=[name]) == []
    types = desk.queue._state.tubes["mail"].ready.types
    assert not types.has_any
    assert not types._orders
    desk.reopen()
    assert not [key for key in desk.store.pairs if key[:1] == TYPED_ORDER]


def test_memory_holds_the_orders_of_the_last_requested_types():
    desk = Desk()
    for name in "abcdef":
        desk.put(20, type=name)
    desk.reopen()
    for name in "abcdefghi":
        desk.take(types=[name], tasks_max=1)
    desk.store.write(desk.queue.collect_writes())
    tube = desk.queue._state.tubes["mail"]
    assert list(tube.ready.types._orders) == ["g", "h", "i"]
    waiting = [task for task in tube.tasks.values() if not task.token]
    assert all(tube.ready.is_head(task) for task in waiting)
