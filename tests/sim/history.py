"""Check the effects of the log and the answers to clients against a simple model."""

from __future__ import annotations

from dataclasses import dataclass, field

from taskraft_replication.core.types import LogIndex
from taskraft_service.queue.entities.refusal import CountResult, Refusal
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.operations.kick_bury_delete import Delete
from taskraft_service.queue.operations.put import Put, PutResult
from taskraft_service.queue.operations.registry import Command, Result
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import CloseSession
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Release,
    Settle,
    SettleResult,
    Touch,
)
from taskraft_service.queue.operations.take import Take, TakeResult
from tests.sim.machine import Applied, Stamped
from tests.sim.violation import Violation, demand

Effect = PutResult | SettleResult | CountResult


@dataclass(slots=True)
class Holding:
    """A lease as the model knows it."""

    token: int
    session_id: str
    until_ms: int


@dataclass(slots=True)
class History:
    """All entries so far, the tasks that must exist, and their holders."""

    applied: dict[LogIndex, Applied] = field(default_factory=dict)
    tasks: dict[int, bytes] = field(default_factory=dict)
    """Payload of each task that was put and not finished, by id."""
    payloads: set[bytes] = field(default_factory=set)
    """All payloads that were ever put."""
    holdings: dict[int, Holding] = field(default_factory=dict)
    changes: list[tuple[LogIndex, int, bytes | None]] = field(default_factory=list)
    """Log index, id, and payload of each put task, or None for a finished task, in order."""
    token_max: int = 0
    effects: dict[str, Effect] = field(default_factory=dict)
    """By request id, the answer given when the request took effect."""
    _index: LogIndex = LogIndex(0)
    """Index of the entry that is judged."""

    def record(self, applied: Applied, content: Stamped | None) -> None:
        """Record an entry that a member has applied."""
        known = self.applied.get(applied.index)
        if known is not None:
            demand(known == applied, f"two members have different results at {applied.index}")
            return
        self.applied[applied.index] = applied
        if content is None:
            return
        self._expire(applied.now_ms)
        self._index = applied.index
        for command, result in zip(content.commands, applied.results, strict=True):
            self._judge(command, result)

    def check_answer(self, applied: Applied) -> None:
        """Check that the answer to a client matches the effect of its command."""
        truth = self.applied.get(applied.index)
        demand(truth == applied, f"a client got a wrong answer for entry {applied.index}")

    def living(self) -> list[int]:
        """Return the ids of the tasks that must exist."""
        return sorted(self.tasks)

    def living_at(self, index: LogIndex) -> dict[int, bytes]:
        """Return the tasks that existed after an entry, with their payloads."""
        found: dict[int, bytes] = {}
        for at, task_id, payload in self.changes:
            if at > index:
                break
            if payload is None:
                del found[task_id]
            else:
                found[task_id] = payload
        return found

    def _expire(self, now_ms: int) -> None:
        for task_id, holding in list(self.holdings.items()):
            if 0 < holding.until_ms <= now_ms:
                del self.holdings[task_id]

    def _judge(self, command: Command, result: Result) -> None:
        if isinstance(result, Refusal) or self._is_repeated(command, result):
            return
        match command, result:
            case Put(), PutResult():
                self._put(command, result)
            case Take(), TakeResult():
                for task in result.tasks:
                    self._take(task)
            case Settle(), SettleResult():
                self._settle(command, result)
            case Delete(selector=ByIds(ids)), CountResult():
                refused = {each.item for each in result.refused}
                for item, task_id in enumerate(ids):
                    if item not in refused:
                        self._finish(task_id)
            case CloseSession(), CountResult():
                self._end_session(command.session_id)
            case _:
                pass  # The model does not cover the command.

    def _is_repeated(self, command: Command, result: Result) -> bool:
        """Return whether a request id had its effect before; then the answer must be the same."""
        request_id = getattr(command, "request_id", "")
        if not request_id or not isinstance(result, Effect):
            return False
        before = self.effects.setdefault(request_id, result)
        if _facts(before) != _facts(result):
            raise Violation(f"{request_id} was answered {before}, then {result}")
        return before is not result

    def _put(self, command: Put, result: PutResult) -> None:
        for task, task_id in zip(command.tasks, result.ids, strict=True):
            if not task_id:
                continue
            demand(task.body not in self.payloads, f"{task.body!r} was put twice")
            demand(task_id not in self.tasks, f"id {task_id} was given twice")
            self.payloads.add(task.body)
            self.tasks[task_id] = task.body
            self.changes.append((self._index, task_id, task.body))

    def _take(self, task: TaskView) -> None:
        holding = self.holdings.get(task.id)
        if holding is not None and holding.token == task.token:
            return  # The command repeats an earlier request, so the answer must be the same.
        demand(holding is None, f"task {task.id} has two holders")
        demand(
            self.tasks.get(task.id) == task.body,
            f"task {task.id} does not have the payload of its put",
        )
        demand(task.token > self.token_max, f"token {task.token} is not new")
        self.token_max = task.token
        self.holdings[task.id] = Holding(task.token, task.session_id, task.lease_until_ms)

    def _settle(self, command: Settle, result: SettleResult) -> None:
        refused = {each.item for each in result.refused}
        until_ms = {each.token: each.lease_until_ms for each in result.touched}
        item = 0
        for settlement in command.settlements:
            for token in settlement.tokens:
                if item not in refused:
                    self._settle_one(settlement, token, until_ms)
                item += 1

    def _settle_one(
        self, settlement: Ack | Release | BuryTaken | Touch, token: int, until_ms: dict[int, int]
    ) -> None:
        holders = [each for each, held in self.holdings.items() if held.token == token]
        demand(bool(holders), f"the lease {token} was settled, but it does not exist")
        (task_id,) = holders
        match settlement:
            case Ack():
                self._finish(task_id)
            case Touch():
                self.holdings[task_id].until_ms = until_ms[token]
            case Release() | BuryTaken():
                del self.holdings[task_id]

    def _finish(self, task_id: int) -> None:
        demand(task_id in self.tasks, f"task {task_id} was finished twice")
        del self.tasks[task_id]
        self.changes.append((self._index, task_id, None))
        self.holdings.pop(task_id, None)

    def _end_session(self, session_id: str) -> None:
        for task_id, holding in list(self.holdings.items()):
            if holding.session_id == session_id:
                del self.holdings[task_id]


def _facts(effect: Effect) -> tuple[object, ...]:
    """Return the facts that the answers to a repeated request must have in common."""
    refused = [(each.item, each.refusal.reason) for each in effect.refused]
    match effect:
        case PutResult():
            return ([*effect.ids], refused)
        case SettleResult():
            return ([(each.token, each.lease_until_ms) for each in effect.touched], refused)
        case CountResult():
            return (effect.count, refused)
