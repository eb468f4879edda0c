"""What the event loop knows of a log without reading it: terms and membership changes."""

from __future__ import annotations

from taskraft_replication.core.types import Entry, EntryKind, LogIndex, Term
from taskraft_replication.storage.stored_log import TermIndex
from tests.replication.log_on_disk import Log, entry


def test_terms_are_known_from_before_the_first_entry():
    terms = TermIndex(LogIndex(10), Term(2))
    for index, term in ((11, 2), (12, 3), (13, 3), (14, 5)):
        terms.append(LogIndex(index), Term(term))
    assert [terms.term(LogIndex(index)) for index in range(10, 15)] == [2, 2, 3, 3, 5]
    terms.drop_before(LogIndex(12))
    assert (terms.before, terms.term(LogIndex(12)), terms.term(LogIndex(14))) == (12, 3, 5)
    terms.cut_after(LogIndex(13))
    assert terms.last == 13
    terms.append(LogIndex(14), Term(4))
    assert terms.term(LogIndex(14)) == 4


def change(index: int, term: int = 1) -> Entry:
    """Return a membership change."""
    return Entry(Term(term), LogIndex(index), b"", EntryKind.CONF_CHANGE_V2)


def changes(log: Log) -> list[int]:
    """Return the indexes of the membership changes that the log reports."""
    view = log.storage.view
    indexes = range(view.first_index(), view.last_index() + 1)
    found = [index for index in indexes if view.has_change(LogIndex(index), LogIndex(index + 1))]
    assert view.has_change(view.first_index(), LogIndex(view.last_index() + 1)) == bool(found)
    return found


def test_the_membership_changes_of_the_log_are_known(tmp_path):
    log = Log(tmp_path)
    log.append(entry(2), change(3), entry(4), change(5))
    assert changes(log) == [3, 5]
    log.open()
    assert changes(log) == [3, 5]
    log.append(entry(5, 2), change(6, 2))
    assert changes(log) == [3, 6], "entry 5 was replaced"
    log.open()
    assert changes(log) == [3, 6]


def test_the_membership_changes_of_a_trimmed_log_are_forgotten(tmp_path):
    log = Log(tmp_path)
    log.append(change(2))
    log.append_each(3, 300)
    start = log.storage.trim_start(LogIndex(200))
    log.storage.view.publish_start(start)
    log.storage.trim(start)
    log.append(change(301))
    assert changes(log) == [301]
    log.storage.view.publish_reset(LogIndex(500), Term(1))
    assert changes(log) == []
