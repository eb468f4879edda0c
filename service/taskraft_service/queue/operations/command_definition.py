"""Define how a module of ``operations`` declares a command and its properties.

A definition says how the command is executed, how its answer is stored, and whether it acts on
replicated or temporary tubes (its side). Each module ends with the definitions of its commands;
``operations.registry`` lists them all.

The answer to each request id is stored for some minutes, so that a repeated request gets the first
answer again. The records are compact, because all requests of these minutes are stored. Leases,
tubes, sessions, groups and schedules are stored as an id or name, and a repeated request gets their
current state. Each record begins with a byte that identifies its codec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from taskraft_service.queue.entities.refusal import REFUSED_ITEMS, CountResult, Refusal
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import Side, SideLookup
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Constant, Field, Number
from taskraft_service.queue.store.keys import SESSION_TIMER

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class AnswerCodec(Generic[R]):
    """Defines how the result of a command is stored.

    Args:
        kinds: first bytes of the records that ``write`` returns; unique among all codecs.
        write: encodes a result.
        repeat: decodes a record and returns the answer to a repeated request.
    """

    kinds: tuple[int, ...]
    write: Callable[[R], bytes]
    repeat: Callable[[QueueState, bytes], R | Refusal]


def table_answer(kind: int, result: Callable[..., R], *fields: Field) -> AnswerCodec[R]:
    """Return the codec of a result that is stored as a whole; ``result`` constructs it."""
    table = FieldTable(result, Constant("B", kind), *fields)
    return AnswerCodec((kind,), table.write, lambda _state, kept: table.read(kept)[0])


def shown_answer(kind: int, show: Callable[..., R | Refusal], *fields: Field) -> AnswerCodec[R]:
    """Return the codec of a result that is stored as a reference.

    ``show`` is called with the state, and with the fields as keyword arguments. ``show`` returns
    the current state of the referenced object.
    """
    table: FieldTable[dict[str, Any]] = FieldTable(dict, Constant("B", kind), *fields)
    return AnswerCodec((kind,), table.write, lambda state, kept: show(state, **table.read(kept)[0]))


COUNT_ANSWER: Final = table_answer(
    5, CountResult, Number("count", "Q"), Number("continue_after_id", "Q"), REFUSED_ITEMS
)

C = TypeVar("C")
Violation: TypeAlias = tuple[str, str]
"""A field path and the description of the error."""


class Idempotent:
    """Base of commands without a request id: idempotent commands, and commands of the leader."""

    __slots__ = ()
    request_id: ClassVar[str] = ""
    request_hash: ClassVar[int] = 0


# ------------------------------------------------------------------------------- ready tasks

DEPENDENTS_MAX: Final = 16
"""Maximum number of dependents of one task that the prediction examines."""


class ReadyPrediction:
    """Tubes in which an entry may make tasks ready, with upper bounds of the numbers of tasks.

    The leader appends the takes of waiting consumers on these tubes to the same entry, so that a
    task is committed and leased in one round of consensus. A tube predicted wrongly costs a take
    that finds nothing. A tube that was not predicted costs one more round of consensus.

    ``put`` has the exact number of tasks per tube of puts. For the tubes in ``names`` only the sum
    ``others`` is known.
    """

    __slots__ = ("names", "now_ms", "others", "put", "state")

    def __init__(self, state: QueueState, now_ms: int) -> None:
        """Start with the tubes of the deadlines that are due at ``now_ms``."""
        self.state = state
        self.now_ms = now_ms
        self.put: dict[str, int] = {}
        self.names: set[str] = set()
        self.others = 1
        least = state.timers.least()
        if least is not None and least[0] <= now_ms:
            self.names.update(_tubes_due(state, now_ms))

    def add_put(self, tube: str, tasks: int) -> None:
        """Add tasks that are put into a tube."""
        self.put[tube] = self.put.get(tube, 0) + tasks

    def add(self, tubes: Iterable[str], tasks: int = 0) -> None:
        """Add tubes in which up to ``tasks`` tasks in total become ready."""
        self.names.update(tubes)
        self.others += tasks

    def counts(self) -> dict[str, int]:
        """Return the number of tasks by tube, in order of the names of the tubes.

        The fixed order decides the order of the appended takes.
        """
        put, others = self.put, self.others
        return {name: put.get(name, 0) or others for name in sorted(self.names.union(put))}


def predict_nothing(_prediction: ReadyPrediction, _command: object) -> None:
    """Add no tube: the command makes no task ready, or it calls ``LeaderSignals.signal_ready``."""


def tubes_of_end(state: QueueState, tube: str) -> Iterator[str]:
    """Yield the tube if its leases are limited: the end of a lease may make a task available."""
    found = state.tubes.get(tube)
    if found is not None and limits_leases(found):
        yield tube


def tubes_of_session(state: QueueState, session_id: str) -> Iterator[str]:
    """Yield the tubes to which the leases of a session return when the session ends."""
    session = state.sessions.get(session_id)
    held = session.held if session is not None else ()
    for token in islice(held, state.limits.steps_alone_max):
        yield from and_dead_letters(state.leases[token].tube)


def tubes_of_dependents(state: QueueState, task: QueueTask) -> Iterator[str]:
    """Yield the tubes of the first ``DEPENDENTS_MAX`` tasks that depend on a task."""
    for number, _ in state.dependents.first_of(task.extras.dependents, DEPENDENTS_MAX):
        tube = state.tubes.by_number.get(number)
        if tube is not None:
            yield tube.name


def limits_leases(tube: QueueTube) -> bool:
    """Return whether the number of leases in the tube, or in its sub-queues, is limited."""
    return tube.ready.counts_leases or tube.options.concurrency > 0


def and_dead_letters(tube: QueueTube) -> Iterator[str]:
    """Yield the name of a tube and of its dead-letter tube, if any."""
    yield tube.name
    if tube.options.dead_letter_tube:
        yield tube.options.dead_letter_tube


def _tubes_due(state: QueueState, now_ms: int) -> Iterator[str]:
    """Yield the tubes of the deadlines in memory that are due."""
    due = state.timers.in_memory_until((now_ms + 1,))
    for _, kind, tube_number, number in islice(due, state.limits.steps_alone_max):
        if kind == SESSION_TIMER:
            yield from tubes_of_session(state, state.sessions.by_number[number].id)
        elif tube_number in state.tubes.by_number:
            yield from and_dead_letters(state.tubes.by_number[tube_number])


# ------------------------------------------------------------------------------------- sides


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
    """Return the side of the command's ``tube``."""
    return side_lookup(command.tube)


def side_of_name(command: _IsNamed, side_lookup: SideLookup) -> Side:
    """Return the side of the tube that the command's ``name`` names."""
    return side_lookup(command.name)


def no_violations(
    _command: object, _side: Side, _side_lookup: SideLookup, _path: str
) -> Iterator[Violation]:
    """Yield nothing: the command is valid for replicated and for temporary tubes."""
    return iter(())


def no_bytes(_command: object) -> int:
    """Return 0, because the command adds no content."""
    return 0


def one_item(_command: object) -> int:
    """Return 1, because the work of the command does not grow with its size."""
    return 1


@dataclass(frozen=True, slots=True)
class CommandDefinition(Generic[C, R]):
    """All parts of one command.

    Args:
        command: the dataclass of the command.
        execute: changes the state and returns the result, or a refusal without an effect.
        predict: adds the tubes in which the command may make tasks ready.
        side: where the command is executed: replicated log, temporary tubes, or both; ``NOWHERE``
            if no tube that the command names exists.
        answer: codec of the result that is kept for a repeated request id; None: no result is kept.
        side_violations: yields the fields that would connect both sides, with their paths.
        growth_bytes: upper bound of the content that the command adds to temporary tubes.
        items: upper estimate of the tasks or sessions that the command changes in its own entry.
    """

    command: type[C]
    execute: Callable[[QueueState, C], R | Refusal]
    predict: Callable[[ReadyPrediction, C], None]
    side: Callable[[C, SideLookup], Side]
    answer: AnswerCodec[R] | None
    side_violations: Callable[[C, Side, SideLookup, str], Iterator[Violation]] = no_violations
    growth_bytes: Callable[[C], int] = no_bytes
    items: Callable[[C], int] = one_item
