"""Encode the result of a command, so that a repeated request id gets the first answer again.

Results are kept for minutes at the full request rate, so the records are compact. Leases, tubes,
sessions, groups and schedules are kept by id or name and are shown as they are at the time of the
repetition. Each record begins with a byte that identifies its codec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.codecs.fields import Constant, Field, Number
from taskraft_service.queue.codecs.refusal_codec import REFUSED_ITEMS
from taskraft_service.queue.entities.refusal import CountResult, Refusal
from taskraft_service.queue.state.queue_state import QueueState

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class AnswerCodec(Generic[R]):
    """How the result of a command is kept.

    Args:
        kinds: first bytes of the records that ``write`` returns; unique among all codecs.
        write: encodes a result.
        repeat: decodes a record and returns the answer to a repetition.
    """

    kinds: tuple[int, ...]
    write: Callable[[R], bytes]
    repeat: Callable[[QueueState, bytes], R | Refusal]


def table_answer(kind: int, result: Callable[..., R], *fields: Field) -> AnswerCodec[R]:
    """Return the codec of a result that is kept whole; ``result`` makes it from the fields."""
    table = FieldTable(result, Constant("B", kind), *fields)
    return AnswerCodec((kind,), table.write, lambda _state, kept: table.read(kept)[0])


def shown_answer(kind: int, show: Callable[..., R | Refusal], *fields: Field) -> AnswerCodec[R]:
    """Return the codec of a result of which only a reference is kept.

    ``show`` gets the state, and the fields as keywords. It returns the answer as it is now.
    """
    table: FieldTable[dict[str, Any]] = FieldTable(dict, Constant("B", kind), *fields)
    return AnswerCodec((kind,), table.write, lambda state, kept: show(state, **table.read(kept)[0]))


COUNT_ANSWER: Final = table_answer(
    5, CountResult, Number("count", "Q"), Number("continue_after_id", "Q"), REFUSED_ITEMS
)
