"""Simulate clients that put, take and settle tasks, lose answers, and retry by request id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol

from taskraft_replication.core.types import LogIndex, RaftRole
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.operations.feed import TrimFeed
from taskraft_service.queue.operations.kick_bury_delete import Delete, Kick
from taskraft_service.queue.operations.leadership import SetWallOffset, Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import Command, Result
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import CloseSession, OpenSession
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Release,
    Settle,
    Settlement,
    Touch,
)
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.store.idempotency import request_scope
from tests.sim.machine import Applied, Stamped
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.invariants import Invariants
    from tests.sim.member import Member

TUBE = "t"
SESSIONS = ("", "s1", "s2", "s3")
OPENING: tuple[Command, ...] = (
    CreateTube(TUBE, TubeKind.FIFOTTL, TubeOptions(), if_not_exists=True),
    *(OpenSession(each, ttr_ms=FOREVER_MS) for each in SESSIONS[1:]),
)
"""Sessions end only when they are closed, so that the model knows the holder of each lease."""

TRIES_MAX = 4
TAKE_TTR_MS = (20, 400, 5000)
EVENTS_KEPT = 20


@dataclass(slots=True)
class Call:
    """Commands of one client call, and the number of its attempts."""

    commands: tuple[Command, ...]
    tries: int = 0
    results: tuple[Result, ...] | None = None


class Awaited(Protocol):
    """A result that a client waits for."""

    def done(self) -> bool: ...


@dataclass(slots=True)
class Answer:
    """The ``ResultFuture`` of one attempt of a call; the result is checked when it arrives."""

    workload: Workload
    call: Call
    committed_before: LogIndex
    """Commit index at the time of the request; the effect must come later in the log."""
    _is_done: bool = False
    error: BaseException | None = None
    """The error, if there is no result."""

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: object, /) -> None:
        assert isinstance(result, Applied)
        self._is_done = True
        self.workload.answered(self, result)

    def set_exception(self, exception: BaseException, /) -> None:
        self._is_done = True
        self.error = exception
        self.workload.counts[f"client: {type(exception).__name__}"] += 1


@dataclass(slots=True)
class Workload:
    """All clients; they know their leases only from answers."""

    counts: Counter[str]
    invariants: Invariants
    idle_share: float = 0.0
    """Share of calls without commands."""
    contents: dict[bytes, Stamped] = field(default_factory=dict)
    """Decoded commands of each entry, by its data."""
    awaited: list[Awaited] = field(default_factory=list)
    """All results that clients wait for; at the end of a run each must be done."""
    _unanswered: list[Call] = field(default_factory=list)
    _tokens: list[int] = field(default_factory=list)
    """Leases that the answers to a client contained."""
    _number: int = 0

    def call(self, member: Member, rng: Random) -> None:
        """Send ``member`` a new call, or repeat an unanswered call."""
        if member.driver.core.role is RaftRole.LEADER and not member.serves:
            self.counts["client: leader does not serve yet"] += 1
            return
        if self._unanswered and rng.random() < 0.3:
            call = self._unanswered.pop(rng.randrange(len(self._unanswered)))
        else:
            call = Call(self._commands(member, rng))
        self._ask(member, call, rng)

    def startup(self, member: Member) -> None:
        """Let a new leader begin to serve."""
        cluster = member.clocks.clock.cluster
        command = Startup(member.id, FOREVER_MS, "feed", 1, cluster.epoch, cluster.term)
        self._propose(member, Call((command, *OPENING), TRIES_MAX))

    def correct(self, member: Member, wall_offset_ms: int) -> None:
        """Set the wall offset, as the leader does."""
        self._propose(member, Call((SetWallOffset(wall_offset_ms),), TRIES_MAX))

    def answered(self, answer: Answer, applied: Applied) -> None:
        """Record the result of a call."""
        self.counts["client: acknowledged"] += 1
        demand(
            applied.index > answer.committed_before,
            f"an effect at {applied.index} is older than its request",
        )
        self.invariants.history.check_answer(applied)
        answer.call.results = tuple(applied.results)
        for result in applied.results:
            if isinstance(result, TakeResult):
                self._tokens += [task.token for task in result.tasks]

    def _ask(self, member: Member, call: Call, rng: Random) -> None:
        call.tries += 1
        if call.tries < TRIES_MAX and rng.random() < 0.5:
            # A pending call is repeated too, as if its answer had been lost.
            self._unanswered.append(call)
            del self._unanswered[:-50]
        self._propose(member, call, bytes(rng.randrange(600)) if rng.random() < 0.1 else b"")

    def _propose(self, member: Member, call: Call, padding: bytes = b"") -> None:
        self._number += 1
        data = b"%d:%d %s" % (self._number, member.id, padding)
        if member.serves:
            # A member that does not serve proposes an entry without commands, even if it then
            # leads.
            self.contents[data] = member.clocks.stamped(call.commands)
        self.counts["client: proposals"] += 1
        answer = Answer(self, call, self.invariants.commit_max)
        self.awaited.append(answer)
        member.driver.propose(data, answer)

    def _commands(self, member: Member, rng: Random) -> tuple[Command, ...]:
        if rng.random() < self.idle_share:
            return ()
        kinds = rng.choices(self._KINDS, self._WEIGHTS, k=rng.choice((1, 1, 2, 4)))
        return tuple(kind(self, member, rng) for kind in kinds)

    def _request_id(self) -> str:
        """Return the next request id; two clients use the same ids, which must not collide."""
        self._number += 1
        number, client = divmod(self._number, 2)
        return request_scope("", f"c{client}") + f"r{number}"

    def _put(self, _: Member, rng: Random) -> Command:
        request_id = self._request_id()
        tasks = [
            NewTask(
                b"%s.%d" % (request_id.encode(), item),
                payload_bytes=8,
                priority=rng.randrange(3),
                delay_ms=rng.choice((0, 0, 0, 100)),
            )
            for item in range(rng.choice((1, 1, 3)))
        ]
        return Put(TUBE, tasks, request_id=request_id)

    def _take(self, _: Member, rng: Random) -> Command:
        return Take(
            (TUBE,),
            session_id=rng.choice(SESSIONS),
            tasks_max=rng.choice((1, 3)),
            ttr_ms=rng.choice(TAKE_TTR_MS),
            request_id=self._request_id(),
        )

    def _settle(self, _: Member, rng: Random) -> Command:
        settlements: list[Settlement] = []
        for _each in range(min(len(self._tokens), rng.choice((1, 3)))):
            token = self._tokens.pop(rng.randrange(len(self._tokens)))
            settlements.append(
                rng.choice(
                    (
                        Ack((token,)),
                        Ack((token,)),
                        Release((token,), delay_ms=rng.choice((0, 50))),
                        BuryTaken((token,)),
                    )
                )
            )
        return Settle(settlements, request_id=self._request_id())

    def _touch(self, _: Member, rng: Random) -> Command:
        tokens = rng.sample(self._tokens, min(len(self._tokens), 2))
        return Settle([Touch(tokens, increment_ms=100)], request_id=self._request_id())

    def _tidy(self, member: Member, rng: Random) -> Command:
        """Kick, delete, close a session, or trim events."""
        choice = rng.randrange(4)
        if choice == 0:
            return Kick(TUBE, count=5, request_id=self._request_id())
        if choice == 1:
            ids = sorted(self.invariants.history.tasks)[: rng.randrange(4)]
            return Delete(TUBE, ByIds(ids), request_id=self._request_id())
        if choice == 2:
            return CloseSession(rng.choice(SESSIONS[1:]), request_id=self._request_id())
        views = member.machine.queue.feed.views()
        return TrimFeed({0: max(views[0].high_seq - EVENTS_KEPT, 0)} if views else {})

    def _reopen(self, _: Member, rng: Random) -> Command:
        return OpenSession(rng.choice(SESSIONS[1:]), ttr_ms=FOREVER_MS)

    _KINDS = (_put, _take, _settle, _touch, _tidy, _reopen)
    _WEIGHTS = (8, 8, 10, 1, 2, 1)


Kind = Callable[[Workload, "Member", Random], Command]
