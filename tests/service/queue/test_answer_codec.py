"""Each kind of answer, with and without refusals, is decoded as it was encoded."""

import pytest

from taskraft_service.queue.answer_codec import decode, encode
from taskraft_service.queue.commands.batch import BatchResult
from taskraft_service.queue.commands.circulation import CountResult
from taskraft_service.queue.commands.intervention import CancelResult
from taskraft_service.queue.commands.put import PutResult
from taskraft_service.queue.commands.settle import SettleResult, TouchedLease
from taskraft_service.queue.entities.refusal import ItemRefusal, Reason, Refusal

REFUSED = [
    ItemRefusal(1, Refusal(Reason.TUBE_FULL, "full", {"tube": "mail", "limit": "3"})),
    ItemRefusal(2, Refusal(Reason.LEASE_STALE, "stale", {})),
]
ANSWERS = [
    PutResult([1, 2, 3], [], []),
    PutResult([1, 0, 0], REFUSED, [0, 2]),
    SettleResult([], []),
    SettleResult(REFUSED, [TouchedLease(7, 99, True), TouchedLease(8, 0, False)]),
    CountResult(3),
    CountResult(3, REFUSED, 17),
    CancelResult(2, 1),
    CancelResult(2, 1, REFUSED, 5),
    BatchResult([]),
    BatchResult([PutResult([4], [], []), SettleResult([], []), CountResult(1), CountResult(2)]),
]


def listed(answer):
    """Return an answer with all sequences as lists."""
    if isinstance(answer, BatchResult):
        return [listed(one) for one in answer.results]
    parts = [getattr(answer, name) for name in answer.__slots__]
    return type(answer), [
        list(part) if isinstance(part, (list, tuple, range)) else part for part in parts
    ]


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
def test_an_answer_is_decoded_as_it_was_encoded(answer):
    assert listed(decode(encode(answer))) == listed(answer)
