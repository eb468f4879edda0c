"""The ordered index equals a sorted set, with any part in memory and the rest in the store."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from taskraft_service.queue.store.ordered_index import NOTHING, OrderedIndex

ENTRIES = st.tuples(st.integers(0, 3), st.integers(0, 12))


class IndexMachine(RuleBasedStateMachine):
    """An index with a tiny head beside a set; a copy of the set replaces the store."""

    def __init__(self) -> None:
        super().__init__()
        self.model: set[tuple[int, ...]] = set()
        self.stored: set[tuple[int, ...]] = set()
        self.index = self.opened(is_stored=False)

    def opened(self, *, is_stored: bool) -> OrderedIndex:
        return OrderedIndex(self.scan, 4, stored=is_stored)

    def scan(self, after):
        return iter(sorted(entry for entry in self.stored if entry > after))

    @rule(entry=ENTRIES)
    def add(self, entry):
        self.index.add(entry)
        self.model.add(entry)

    @rule(entries=st.lists(ENTRIES, max_size=30))
    def add_many(self, entries):
        for entry in entries:
            self.add(entry)

    @rule(entry=ENTRIES)
    def discard(self, entry):
        self.index.discard(entry)
        self.model.discard(entry)

    @rule()
    def pop_least(self):
        expected = min(self.model, default=None)
        assert self.index.pop_least() == expected
        self.model.discard(expected)

    @rule(count=st.integers(0, 6))
    def pop_many(self, count):
        popped = self.index.pop_many(count)
        assert popped == sorted(self.model)[: len(popped)]
        assert bool(popped) == bool(self.model and count)
        self.model.difference_update(popped)

    @rule()
    def pop_and_add_back(self):
        entry = self.index.pop_least()
        if entry is not None:
            self.index.put_back(entry)

    @rule()
    def flush(self):
        self.stored = set(self.model)
        self.index.flushed()

    @rule()
    def reopen(self):
        self.flush()
        self.index = self.opened(is_stored=bool(self.stored))

    @invariant()
    def agrees_with_the_set(self):
        assert list(self.index.ordered()) == sorted(self.model)
        assert self.index.least() == min(self.model, default=None)

    @invariant()
    def keeps_the_head_small(self):
        assert len(self.index._members) <= 4
        assert len(self.index._run) + len(self.index._heap) <= 2 * 4 + 64 + 1


IndexMachine.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestOrderedIndex = IndexMachine.TestCase


def test_the_least_entry_is_read_from_the_store_if_memory_has_none():
    """Nothing is read before the first request."""
    asked = []

    def scan(after):
        asked.append(after)
        return iter([(1,), (2,), (3,)])

    index = OrderedIndex(scan, 2, stored=True)
    assert asked == []
    assert index.pop_least() == (1,)
    assert asked == [NOTHING]


def test_stale_entries_are_compacted_away():
    """An owner that adds and discards forever does not fill the memory."""
    index = OrderedIndex(lambda _: iter(()), 1_000, stored=False)
    for number in range(10_000):
        index.add((number,))
        index.discard((number,))
        if number % 100 == 0:
            index.flushed()
    assert len(index._run) + len(index._heap) <= 65
