"""Each kind of answer, with and without refusals, is decoded as it was encoded."""

import pytest

from taskraft_service.queue.entities.refusal import CountResult, ItemRefusal, Reason, Refusal
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.operations.batch import BatchResult
from taskraft_service.queue.operations.cancel import CancelResult
from taskraft_service.queue.operations.put import PutResult
from taskraft_service.queue.operations.settlements import (
    GivenUpLease,
    SettleResult,
    TouchedLease,
)
from tests.service.queue.kept_answers import decode, encode

REFUSED = [
    ItemRefusal(1, Refusal(Reason.TUBE_FULL, "full", {"tube": "mail", "limit": "3"})),
    ItemRefusal(2, Refusal(Reason.LEASE_STALE, "stale", {})),
]
ANSWERS = [
    PutResult([1, 2, 3], [], []),
    PutResult([1, 0, 0], REFUSED, [0, 2]),
    SettleResult([], []),
    SettleResult(REFUSED, [TouchedLease(7, 99, True), TouchedLease(8, 0, False)]),
    SettleResult(REFUSED, [TouchedLease(7, 99)], [GivenUpLease(9, TaskOutcome.BURIED_OUT)]),
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


RECORDS = [
    "01000000000000000100000003",
    (
        "02000000030000000000000001000000000000000000000000000000000000000200000000000000"
        "0000000000000000020000000200000001001e000000050000000466756c6c000000047475626500"
        "0000046d61696c000000056c696d6974000000013300000002001400000001000000057374616c65"
    ),
    "040000000000000000",
    (
        "04000000020000000000000007000000000000006301000000000000000800000000000000000000"
        "00000200000001001e000000050000000466756c6c0000000474756265000000046d61696c000000"
        "056c696d6974000000013300000002001400000001000000057374616c65"
    ),
    (
        "20000000010000000000000007000000000000006300000000010000000000000009030000000200"
        "000001001e000000050000000466756c6c0000000474756265000000046d61696c000000056c696d"
        "6974000000013300000002001400000001000000057374616c65"
    ),
    "050000000000000003000000000000000000000000",
    (
        "05000000000000000300000000000000110000000200000001001e000000050000000466756c6c00"
        "00000474756265000000046d61696c000000056c696d697400000001330000000200140000000100"
        "0000057374616c65"
    ),
    "1e0000000200000001000000000000000000000000",
    (
        "1e000000020000000100000000000000050000000200000001001e000000050000000466756c6c00"
        "00000474756265000000046d61696c000000056c696d697400000001330000000200140000000100"
        "0000057374616c65"
    ),
    "1f00000000",
    (
        "1f000000040000000d01000000000000000400000001000000090400000000000000000000001505"
        "00000000000000010000000000000000000000000000001505000000000000000200000000000000"
        "0000000000"
    ),
]


@pytest.mark.parametrize(("answer", "record"), list(zip(ANSWERS, RECORDS, strict=True)), ids=repr)
def test_the_encoding_of_a_kept_answer_is_stable(answer, record):
    assert encode(answer).hex() == record
