"""Define what a module of ``operations`` states about a command.

Each module ends with the definitions of its commands; ``operations.registry`` lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.operations.answer_codec import AnswerCodec
from taskraft_service.queue.operations.ready_prediction import ReadyPrediction
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import Side, SideLookup

C = TypeVar("C")
R = TypeVar("R")
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
