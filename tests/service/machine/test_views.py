"""A view shows the state after one entry, whatever is applied later."""

import pytest

from taskraft_replication.core.types import LogIndex
from tests.service.machine.test_state_machine import machine_in, story


def test_the_state_after_an_entry_is_fixed_at_once_or_later(tmp_path):
    """Machines with different batches fix the same records; later entries do not change them."""
    seen = []
    for entries in (1, 2, 100):
        one = machine_in(tmp_path / str(entries), entries=entries)
        views = []
        one.view_at(LogIndex(4), lambda *view, views=views: views.append(view))
        one.apply(story()[:3])
        assert not views
        one.apply(story()[3:])
        one.view_at(LogIndex(6), lambda *view, views=views: views.append(view))
        assert [(index, version) for index, version, _ in views] == [(4, 1), (6, 1)]
        seen.append([list(view.scan(b"t")) for *_, view in views])
        one.view_at(LogIndex(5), lambda *_: pytest.fail("a later entry is applied"))
        one.abandon()
    assert seen[0] == seen[1] == seen[2]
    four, six = seen[0]
    assert (len(four), len(six)) == (9, 7), "entry 6 acknowledges two tasks"
    states = [record[0] for _, record in four]
    assert sorted(states.count(each) for each in set(states)) == [4, 5], "entry 4 takes four tasks"
