"""The queue gives the answers of the scenario files, in memory, flushed, and reopened."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from taskraft_service.queue.limits import Limits
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.scenario import rewritten
from tests.service.queue.scenario_policies import replaced

FOLDER = Path(__file__).parents[2] / "scenarios" / "queue"
FILES = sorted(FOLDER.glob("*.txt"))
SMALL = Limits(
    head_entries_max=2,
    resident_bytes_max=1,
    groups_max=4,
    types_max=1,
    type_entries_max=2,
)


def limits_of(text):
    """Return the limits of a scenario; ``steps 3)`` in a comment sets the steps of an entry."""
    steps = re.search(r"^#.*\bsteps (\d+)\)", text, re.MULTILINE)
    if steps is None:
        return SMALL
    number = int(steps[1])
    return replace(SMALL, steps_alone_max=number, steps_beside_max=number, steps_max=number)


def never(_store, _limits):
    return lambda queue: queue


def collected(store, _limits):
    """Write all changes after each block, and check that nothing else is written."""

    def between(queue):
        store.write(queue.collect_writes())
        state = queue._state
        holders = (*state.tubes.values(), *(tube for tube, _ in state.removals.values()))
        bodies = [task.body or b"" for tube in holders for task in tube.tasks.values()]
        assert state.resident_bytes == sum(map(len, bodies))
        assert len([*queue.collect_writes()]) <= 1, "all changes were written already"
        return queue

    return between


def reopened(store, limits):
    """Write and reopen after each block: the store has the whole state."""

    def between(queue):
        digest = queue.digest()
        store.write(queue.collect_writes())
        assert queue.digest() == digest
        fresh = Queue(store, limits, editor=replaced)
        assert fresh.digest() == digest
        return fresh

    return between


@pytest.mark.parametrize("between", [never, collected, reopened], ids=lambda way: way.__name__)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path, between, request):
    """`pytest --rewrite` writes the actual answers; the reviewer reads the diff."""
    store = MemoryStore()
    text = path.read_text()
    limits = limits_of(text)
    actual = rewritten(text, Queue(store, limits, editor=replaced), between(store, limits))
    if request.config.getoption("--rewrite"):
        path.write_text(actual)
    assert actual == path.read_text()


def test_scenarios_exist():
    assert len(FILES) > 10
