"""Do alike commands that stand together in an entry at once.

When many consumers are served at a time, an entry has a take and an acknowledgement of each, and
what is done once per command costs several times what is done per task. The answers, the events and
the state are those of the commands one by one: where that is not certain, they are done so.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from taskraft_service.queue.answer_codec import encode
from taskraft_service.queue.commands.settle import Ack, Settle
from taskraft_service.queue.commands.take import Take, TakeResult
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.operations.acknowledge import is_plain
from taskraft_service.queue.operations.settle import settle_each
from taskraft_service.queue.operations.take import take_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from taskraft_service.queue.commands.command import Command, Result
    from taskraft_service.queue.state.queue_state import QueueState

Likeness: TypeAlias = tuple[str, int | None] | None
"""Equal for commands that may be done together; None: alone."""

SETTLES: Likeness = ("", None)
"""Likeness of plain acknowledgements; that of takes has the name of a tube, which is not empty."""


def runs(commands: Sequence[Command]) -> Iterable[tuple[Likeness, Sequence[Command]]]:
    """Cut the commands of an entry into those that are alike."""
    if len(commands) < 2:
        return ((None, commands),)
    return [(likeness, list(run)) for likeness, run in groupby(commands, _likeness)]


def _likeness(command: Command) -> Likeness:
    """Return what makes a command one of several that can be done together."""
    if isinstance(command, Settle):
        if len(command.settlements) == 1 and not command.atomic:
            only = command.settlements[0]
            if isinstance(only, Ack) and is_plain(only):
                return SETTLES
    elif isinstance(command, Take):
        wants_one = command.tasks_max == 1 and len(command.tubes) == 1 and command.task_id is None
        if wants_one and not command.types and command.priority_bound is None:
            return command.tubes[0], command.ttr_ms
    return None


def answer_together(ledger: QueueState, run: Sequence[Command]) -> Sequence[Result]:
    """Do commands that are alike, and answer them.

    There may be fewer answers, or none: the other commands have not been done.
    """
    named = [command.request_id for command in run if command.request_id]
    if named and (len(set(named)) < len(named) or any(map(ledger.requests.find, named))):
        return ()
    answers = _do_together(ledger, run)
    if named:
        for place, answer in enumerate(answers):
            remember(ledger, run[place], answer)
    return answers


def _do_together(ledger: QueueState, run: Sequence[Command]) -> Sequence[Result]:
    if isinstance(run[0], Take):
        return take_each(ledger, [command for command in run if isinstance(command, Take)])
    return settle_each(ledger, [command for command in run if isinstance(command, Settle)])


def remember(ledger: QueueState, command: Command, answer: Result) -> None:
    """Remember the answer of a command, if it has a request id, in case that it is repeated.

    Refused commands and takes that found nothing had no effect, so they are not remembered: a
    producer that was told to wait for room may ask again with the same id.
    """
    if isinstance(answer, Refusal) or (isinstance(answer, TakeResult) and not answer.tasks):
        return
    if command.request_id:
        ledger.requests.remember(command.request_id, command.request_hash, encode(answer))
