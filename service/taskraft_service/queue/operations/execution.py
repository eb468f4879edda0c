"""Execute the commands of an entry, and answer repeated requests.

Neighbouring commands of one kind are executed together where that has the same effect: takes of
one task from one tube, and plain acknowledgements. When the leader serves many consumers, an entry
holds one take and one acknowledgement of each, and the cost per command is several times the cost
per task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeAlias

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.operations.acknowledge import is_plain
from taskraft_service.queue.operations.registry import (
    ANSWERS,
    DEFINITIONS,
    EXECUTE,
    Command,
    Result,
)
from taskraft_service.queue.operations.settle import settle_each
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take, TakeResult, take_each
from taskraft_service.queue.state.queue_state import QueueState

Likeness: TypeAlias = tuple[str, int | None] | None
"""Equal for commands that can be executed together; None: execute alone."""

SETTLES: Likeness = ("", None)
"""Likeness of plain acknowledgements; the likeness of a take has a tube name instead."""


def runs(commands: Sequence[Command]) -> Iterable[tuple[Likeness, Sequence[Command]]]:
    """Split the commands of an entry into runs of equal likeness."""
    if len(commands) < 2:
        return ((None, commands),)
    return [(likeness, list(run)) for likeness, run in groupby(commands, _likeness)]


def _likeness(command: Command) -> Likeness:
    """Return the likeness of a command."""
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


def execute_together(state: QueueState, run: Sequence[Command]) -> Sequence[Result]:
    """Execute a run of commands together; return the results of the first commands.

    There may be fewer results than commands, or none; the remaining commands are not executed.
    """
    named = [command.request_id for command in run if command.request_id]
    if named and (len(set(named)) < len(named) or any(map(state.requests.find, named))):
        return ()
    answers = _do_together(state, run)
    if named:
        for place, answer in enumerate(answers):
            remember(state, run[place], answer)
    return answers


def _do_together(state: QueueState, run: Sequence[Command]) -> Sequence[Result]:
    if isinstance(run[0], Take):
        return take_each(state, [command for command in run if isinstance(command, Take)])
    return settle_each(state, [command for command in run if isinstance(command, Settle)])


def execute(state: QueueState, command: Command) -> Result:
    """Execute a command; answer a repeated request id with the result of the first request.

    A request id that comes back with another request is refused.
    """
    request_id = command.request_id
    if not request_id:
        return EXECUTE[type(command)](state, command)
    known = state.requests.find(request_id)
    if known is not None:
        request_hash, kept = known
        if request_hash != command.request_hash:
            return Refusal(
                Reason.REQUEST_ID_REUSED,
                "this request_id was used before with another request; use a new request_id",
                {"request_id": request_id},
            )
        answer: Result = ANSWERS[kept[0]].repeat(state, kept)
        return answer
    result = EXECUTE[type(command)](state, command)
    remember(state, command, result)
    return result


def remember(state: QueueState, command: Command, result: Result) -> None:
    """Keep the result of a command that has a request id, for a repetition of the request.

    Refusals and takes that found no task had no effect, so they are not kept: the same request id
    may be sent again.
    """
    if isinstance(result, Refusal) or (isinstance(result, TakeResult) and not result.tasks):
        return
    if command.request_id:
        codec = DEFINITIONS[type(command)].answer
        assert codec is not None, f"{type(command).__name__} has a request id but keeps no answer"
        kept = codec.write(result)
        state.requests.remember(command.request_id, command.request_hash, kept)
