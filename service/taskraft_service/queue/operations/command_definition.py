"""Define what a module of ``operations`` states about a command, and how its answer is kept.

Each module ends with the definitions of its commands; ``operations.registry`` lists them all.

The answer to a request id is kept, so that a repetition gets the first answer again: for minutes at
the full request rate, so the records are compact. Leases, tubes, sessions, groups and schedules are
kept by id or name and are shown as they are at the time of the repetition. Each record begins with
a byte that identifies its codec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.codecs.fields import Constant, Field, Number
from taskraft_service.queue.codecs.refusal_codec import REFUSED_ITEMS
from taskraft_service.queue.entities.refusal import CountResult, Refusal
from taskraft_service.queue.operations.ready_prediction import ReadyPrediction
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import Side, SideLookup

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

C = TypeVar("C")
Violation: TypeAlias = tuple[str, str]
"""A field path and what is wrong with the field."""


class Idempotent:
    """Base of commands without a request id: harmless when repeated, or sent by the leader."""

    __slots__ = ()
    request_id: ClassVar[str] = ""
    request_hash: ClassVar[int] = 0


class _NamesTube(Protocol):
    @property
    def tube(self) -> str: ...


class _IsNamed(Protocol):
    @property
    def name(self) -> str: ...


def replicated(_command: object, _side_lookup: SideLookup) -> Side:
    """Return ``Side.LOG``: the command changes definitions, sessions or the feed, not tasks."""
    return Side.LOG


def side_of_tube(command: _NamesTube, side_lookup: SideLookup) -> Side:
    """Return the side of the command's ``tube``; ``Side.LOG`` if the tube does not exist."""
    return side_lookup(command.tube) or Side.LOG


def side_of_name(command: _IsNamed, side_lookup: SideLookup) -> Side:
    """Return the side of the tube that the command's ``name`` names."""
    return side_lookup(command.name) or Side.LOG


def no_violations(
    _command: object, _side: Side, _side_lookup: SideLookup, _path: str
) -> Iterator[Violation]:
    """Yield nothing: the command can be executed on either side."""
    return iter(())


def no_bytes(_command: object) -> int:
    """Return 0: the command does not add content."""
    return 0


@dataclass(frozen=True, slots=True)
class CommandDefinition(Generic[C, R]):
    """All parts of one command.

    Args:
        command: the dataclass of the command.
        execute: changes the state and returns the result, or a refusal without an effect.
        predict: adds the tubes in which the command may make tasks ready.
        side: where the command is executed: replicated log, temporary tubes, or both.
        answer: how the result is kept for a repeated request id; None: the result is not kept.
        side_violations: yields the fields that would connect both sides, with their paths.
        growth_bytes: upper bound of the content that the command adds to temporary tubes.
    """

    command: type[C]
    execute: Callable[[QueueState, C], R | Refusal]
    predict: Callable[[ReadyPrediction, C], None]
    side: Callable[[C, SideLookup], Side]
    answer: AnswerCodec[R] | None
    side_violations: Callable[[C, Side, SideLookup, str], Iterator[Violation]] = no_violations
    growth_bytes: Callable[[C], int] = no_bytes
