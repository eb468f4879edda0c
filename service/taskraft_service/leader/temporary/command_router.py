"""Route each command to the replicated log, to the temporary tubes, or to both.

While there is no temporary tube, every command goes to the log. A put is refused if the driver of
its tube fails for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from taskraft_service.command_codecs.audit import RECORD_ACT, act_message
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.command_submitter import AppliedCommand, CommandSubmitter
from taskraft_service.leader.temporary.split_commands import SplitSettle, split_notes, split_take
from taskraft_service.leader.temporary.temporary_tubes import TemporaryTubes
from taskraft_service.queue.entities.refusal import CountResult, Reason, Refusal
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.leadership import NoteCalls
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import DEFINITIONS, Command
from taskraft_service.queue.operations.sessions import CloseSession
from taskraft_service.queue.operations.settlements import Settle, SettleResult
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.operations.tubes import DropTube
from taskraft_service.queue.state.temporary_tubes import Side, SideLookup
from taskraft_service.stubs.log.v1 import log_pb2

Submitted: TypeAlias = asyncio.Future[AppliedCommand]


class CommandRouter:
    """Submits commands to the log or to the temporary tubes; implements ``CommandSubmitter``.

    Args:
        log: the proposer.
        temporary: the temporary tubes.
        trial: returns why the driver of a tube fails for the tasks of a put, or None; absent if no
            driver is installed.
    """

    def __init__(
        self,
        log: CommandSubmitter,
        temporary: TemporaryTubes,
        trial: Callable[[Command], Refusal | None] | None = None,
    ) -> None:
        self._log = log
        self._trial = trial
        self._temporary = temporary
        self._memory_first = False
        self._counts: dict[str, int] = {}
        """Temporary tasks that were removed with a tube or session, by its name or id."""
        temporary.listen_emptied(self._count)

    def wake(self) -> None:
        """Serve the waiting consumers of both sides."""
        self._log.wake()
        self._temporary.wake()

    def submit(self, encoded: EncodedCommand, deadline: float | None = None) -> Submitted:
        """Execute a command on the side of its tubes."""
        temporary = self._temporary
        command = encoded.command
        if self._trial is not None and isinstance(command, Put | ExecuteBatch):
            failure = self._trial(command)
            if failure is not None:
                return _done(AppliedCommand(0, 0, 0, failure))
        if not temporary.definitions:
            return self._log.submit(encoded, deadline)
        if isinstance(command, DropTube | CloseSession):
            return self._submit_end(encoded, command, deadline)
        if isinstance(command, NoteCalls):
            return self._note_on_both(command, deadline)
        # The log also refuses commands of tubes that do not exist.
        side = DEFINITIONS[type(command)].side(command, temporary.side_of) or Side.LOG
        refusal = _refusal_of_side(command, side, temporary.side_of)
        if refusal is not None:
            return _done(AppliedCommand(0, 0, 0, refusal))
        if side is Side.LOG:
            return self._log.submit(encoded, deadline)
        if side is Side.MEMORY:
            return self._submit_to_memory(encoded, deadline)
        if isinstance(command, Take):
            return self._take_from_both(encoded, command, deadline)
        assert isinstance(command, Settle), f"{command} is refused across"
        return self._settle_both(encoded, deadline)

    def _submit_to_memory(self, encoded: EncodedCommand, deadline: float | None) -> Submitted:
        """Execute a command on temporary tubes; record its act in the log, without its result."""
        outcome = self._temporary.submit(encoded)
        if encoded.act is None:
            return _done(outcome)
        message = log_pb2.RecordAct(act=act_message(encoded.act))
        recorded = self._log.submit(encode_leader_command(RECORD_ACT, message), deadline)
        return _after(recorded, lambda _recorded: outcome)

    # ------------------------------------------------------------------------------ both sides

    def _take_from_both(
        self, encoded: EncodedCommand, command: Take, deadline: float | None
    ) -> Submitted:
        """Take from one queue, and from the other if nothing was found; the order alternates.

        With a request id the log comes first, unless the temporary tubes know the request id. A
        repeated request is therefore answered by the queue that gave the first answer.
        """
        logged, temporary = split_take(encoded, self._temporary.side_of)
        if command.request_id:
            memory_first = self._temporary.remembers(command.request_id)
        else:
            memory_first = self._memory_first = not self._memory_first
        if memory_first:
            outcome = self._temporary.submit(temporary)
            if not _is_empty(outcome):
                return _done(outcome)
            return _after(self._log.submit(logged, deadline), partial(_marked_cut_short, outcome))
        proposed = self._log.submit(logged, deadline)
        return _after(
            proposed,
            lambda found: (
                _marked_cut_short(found, self._temporary.submit(temporary))
                if _is_empty(found)
                else found
            ),
        )

    def _settle_both(self, encoded: EncodedCommand, deadline: float | None) -> Submitted:
        """Settle on both sides; if the proposer rejects the command, settle on neither side."""
        parted = SplitSettle(encoded)
        proposed = self._log.submit(parted.logged, deadline)
        here = self._temporary.submit(parted.temporary).result

        def join(there: AppliedCommand) -> AppliedCommand:
            for result in (there.result, here):
                if isinstance(result, Refusal):
                    return replace(there, result=result)
            assert isinstance(there.result, SettleResult)
            assert isinstance(here, SettleResult)
            return replace(there, result=parted.joined(there.result, here))

        return _after(proposed, join)

    def _note_on_both(self, command: NoteCalls, deadline: float | None) -> Submitted:
        """Count calls on both sides; in memory only after the log has applied its part.

        Otherwise, after a failure, the calls would be reported again and counted twice in memory.
        """
        logged, temporary = split_notes(command, self._temporary.side_of)

        def note_here(there: AppliedCommand) -> AppliedCommand:
            if not self._temporary.definitions:
                return there
            here = self._temporary.submit(temporary).result
            assert isinstance(there.result, CountResult)
            assert isinstance(here, CountResult)
            known = CountResult(there.result.count + here.count)
            return replace(there, result=known)

        return _after(self._log.submit(logged, deadline), note_here)

    # ------------------------------------------------------------------------------ ends

    def _submit_end(
        self, encoded: EncodedCommand, command: DropTube | CloseSession, deadline: float | None
    ) -> Submitted:
        """Drop a tube or close a session in the log; add the temporary tasks to the count."""
        what = command.name if isinstance(command, DropTube) else command.session_id
        if isinstance(command, DropTube):
            refusal = self._temporary.refusal_to_drop(command)
            if refusal is not None:
                return _done(AppliedCommand(0, 0, 0, refusal))
        self._counts[what] = 0
        try:
            proposed = self._log.submit(encoded, deadline)
        except BaseException:
            del self._counts[what]
            raise
        answered = _after(proposed, partial(self._with_count, what))
        proposed.add_done_callback(lambda _done: self._counts.pop(what, None))
        return answered

    def _count(self, what: str, tasks: int) -> None:
        if what in self._counts:
            self._counts[what] += tasks

    def _with_count(self, what: str, outcome: AppliedCommand) -> AppliedCommand:
        tasks = self._counts.get(what, 0)
        if isinstance(outcome.result, CountResult):
            result = CountResult(outcome.result.count + tasks)
            return replace(outcome, result=result)
        return outcome


def _is_empty(outcome: AppliedCommand) -> bool:
    """Return whether a take found nothing."""
    return isinstance(outcome.result, TakeResult) and not outcome.result.tasks


def _marked_cut_short(empty: AppliedCommand, later: AppliedCommand) -> AppliedCommand:
    """Return the outcome of the later take, cut short if one of the two takes was cut short.

    ``empty`` is the outcome of the take from the first queue, which found no task.
    """
    first, second = empty.result, later.result
    if isinstance(first, TakeResult) and isinstance(second, TakeResult) and first.cut_short:
        return replace(later, result=TakeResult(second.tasks, cut_short=True))
    return later


def _done(outcome: AppliedCommand) -> Submitted:
    future: Submitted = asyncio.get_running_loop().create_future()
    future.set_result(outcome)
    return future


def _after(proposed: Submitted, follow: Callable[[AppliedCommand], AppliedCommand]) -> Submitted:
    """Return a future of ``follow`` applied to a result; cancelling it cancels the proposal."""
    future: Submitted = asyncio.get_running_loop().create_future()

    def go_on(_done: Submitted) -> None:
        if future.done():
            return
        if proposed.cancelled():
            future.cancel()
            return
        error = proposed.exception()
        try:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(follow(proposed.result()))
        except Exception as refused:  # noqa: BLE001 - the waiting caller gets it
            future.set_exception(refused)

    def give_up(given_up: Submitted) -> None:
        if given_up.cancelled():
            proposed.cancel()

    proposed.add_done_callback(go_on)
    future.add_done_callback(give_up)
    return future


def _refusal_of_side(command: Command, side: Side, side_lookup: SideLookup) -> Refusal | None:
    """Return a refusal with all fields that would connect both sides, or None."""
    violations = [*DEFINITIONS[type(command)].side_violations(command, side, side_lookup, "")]
    if not violations:
        return None
    field, text = violations[0]
    return Refusal(Reason.INVALID_FIELD, f"{field} {text}", {"field": field}, tuple(violations))
