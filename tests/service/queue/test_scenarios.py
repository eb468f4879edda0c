"""The scenario files say what the queue does; each is played in memory, flushed, and reopened."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.queue.limits import Limits
from service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.scenario import rewritten
from tests.service.queue.scenario_policies import replaced

FOLDER = Path(__file__).parents[2] / "scenarios" / "queue"
FILES = sorted(FOLDER.glob("*.txt"))
SMALL = Limits(head_entries_max=2, resident_bytes_max=1, group_tasks_per_entry_max=3, groups_max=4)


def never(_store):
    return lambda queue: queue


def collected(store):
    def between(queue):
        store.write(queue.collect_writes())
        return queue

    return between


def reopened(store):
    def between(queue):
        store.write(queue.collect_writes())
        return Queue(store, SMALL, editor=replaced)

    return between


@pytest.mark.parametrize("between", [never, collected, reopened], ids=lambda way: way.__name__)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path, between, request):
    """`pytest --rewrite` writes what the queue says; the reviewer reads the difference."""
    store = MemoryStore()
    text = path.read_text()
    actual = rewritten(text, Queue(store, SMALL, editor=replaced), between(store))
    if request.config.getoption("--rewrite"):
        path.write_text(actual)
    assert actual == path.read_text()


def test_there_are_scenarios():
    assert len(FILES) > 10
