"""The terms of a log are stored as runs of equal terms."""

from __future__ import annotations

from taskraft_replication.core.types import LogIndex, Term
from taskraft_replication.storage.stored_log import TermIndex


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
