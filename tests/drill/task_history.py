"""The history of each task: its puts, leases and removals, as intervals of time.

Attempts with one request id are one request, which takes effect at most once. Lease tokens grow
with every take, so tokens give the order of the deliveries of a task. With this order, all rules
take polynomial time: no rule tries different orders of operations.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from tests.drill.history import History, Operation
from tests.drill.request import Request, requests_of

SECOND_NS = 1_000_000_000
ENDING = frozenset({"ack", "release", "bury"})
"""Settlements that end a lease."""
SETTLEMENTS = ENDING | {"touch"}
TaskKey = tuple[str, int]


class Violation(NamedTuple):
    """One broken promise, as the answers of the nodes show it."""

    promise: str
    """Number of the promise in the docstring of ``judge``."""
    code: str
    """Most likely cause; the verdict does not depend on it."""
    text: str

    def __str__(self) -> str:
        """Return the violation as one line."""
        return f"{self.promise} {self.code}: {self.text}"


@dataclass(slots=True)
class Delivery:
    """One lease of a task."""

    take: Request
    token: int
    session: str
    settlements: list[Request] = field(default_factory=list)

    @property
    def invoked_ns(self) -> float:
        """Earliest time of the take."""
        return self.take.invoked_ns

    @property
    def ended_ns(self) -> float:
        """Latest time of the take."""
        return self.take.ended_ns

    def ends(self, ended_by: Iterable[str] = ENDING) -> list[Request]:
        """Return the settlements that ended the lease or may have."""
        return [one for one in self.settlements if one.f in ended_by and one.may_have_happened]


@dataclass(slots=True)
class TaskHistory:
    """Everything that a history says about one task."""

    tube: str
    id: int
    puts: list[Request] = field(default_factory=list)
    """Acknowledged puts of the task; without any, each put of unknown outcome that may be its put.
    """
    deliveries: list[Delivery] = field(default_factory=list)
    strays: list[Request] = field(default_factory=list)
    """Settlements with a token that no take returned."""
    deletions: list[Request] = field(default_factory=list)
    burials: list[Request] = field(default_factory=list)
    """Burials by an administrator."""
    peeks: list[Operation] = field(default_factory=list)
    listed: list[tuple[Operation, dict[str, Any]]] = field(default_factory=list)
    """Listings that show the task, each with its item."""

    @property
    def name(self) -> str:
        """Return the name of the task in texts."""
        return f"task {self.id} of {self.tube}"

    def put_values(self, name: str, missing: Any) -> set[Any]:
        """Return the values that the puts give to a field; ``missing`` for a put without it."""
        return {put.value.get(name, missing) for put in self.puts}

    def settlements(self) -> list[Request]:
        """Return all settlements that name the task."""
        return [one for each in self.deliveries for one in each.settlements] + self.strays

    def removals(self) -> list[Request]:
        """Return the requests that removed the task or may have."""
        acks = [one for one in self.settlements() if one.f == "ack"]
        return [one for one in acks + self.deletions if one.may_have_happened]

    def seen(self) -> list[tuple[float, float, str]]:
        """Return each observation of the task: earliest and latest time, and the operation."""
        found = [(one.invoked_ns, one.ended_ns, "a take") for one in self.deliveries]
        found += [
            (one.invoked_ns, one.ended_ns, "a peek")
            for one in self.peeks
            if one.is_ok and one.answer.get("state") not in (None, "-")
        ]
        return found + [
            (one.invoked_ns, one.ended_ns, "a listing")
            for one, item in self.listed
            if item.get("state") != "-"
        ]

    def uids(self) -> set[str]:
        """Return the contents that answers showed or puts gave to the task."""
        found = {one.value["uid"] for one in self.puts if one.is_ok}
        found |= {one.take.answer["uid"] for one in self.deliveries if "uid" in one.take.answer}
        answers = [one.answer for one in self.peeks if one.is_ok]
        found |= {one["uid"] for one in answers if one.get("uid") is not None}
        return found | {item["uid"] for _, item in self.listed if item.get("uid") is not None}


class TaskHistories:
    """The tasks of a history, with the intervals in which their states are certain."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.config = history.config
        self.puts = requests_of(history.of("put"))
        self.takes = requests_of(history.of("take"))
        self.kicks = requests_of(history.of("kick"))
        self.sweeps = requests_of(history.of("truncate", "release_all"))
        """Requests that change all tasks of a tube."""
        self.tasks: dict[TaskKey, TaskHistory] = {}
        self.puts_of_uid: dict[str, list[Request]] = defaultdict(list)
        self._index_puts()
        self._index_takes()
        self._index_settlements()
        self._index_observations()

    def task(self, tube: str, number: int) -> TaskHistory:
        """Return the record of a task; create the record at the first mention of the task."""
        return self.tasks.setdefault((tube, number), TaskHistory(tube, number))

    def tube(self, name: str) -> dict[str, Any]:
        """Return the configuration of a tube."""
        return self.config.get("tubes", {}).get(name, {})

    def has_subqueues(self, tube: str) -> bool:
        """Return whether a tube has sub-queues."""
        return str(self.tube(tube).get("type", "")).startswith("utube")

    @cached_property
    def slack_ns(self) -> float:
        """Tolerance of the judge for deadlines that fire early, in ns."""
        return self.config.get("slack", 0.010) * SECOND_NS

    @cached_property
    def session_ends_ns(self) -> dict[str, float]:
        """Earliest possible end of each session."""
        lives_ns = self.config.get("session_ttr")
        ends: dict[str, float] = {}
        if lives_ns is None and "session_ttr" not in self.config:
            return ends
        for one in self.history.operations:
            session = one.answer.get("session") or one.value.get("session")
            if one.is_ok and session is not None and one.f not in ("session_close", "disconnect"):
                until = math.inf if lives_ns is None else one.invoked_ns + lives_ns * SECOND_NS
                ends[session] = max(ends.get(session, 0), until)
        for one in self.history.of("session_close"):
            if one.may_have_happened:
                session = one.value["session"]
                ends[session] = min(ends.get(session, 0), one.invoked_ns)
        return ends

    def held_until_ns(self, task: TaskHistory, held: Delivery) -> float:
        """Return the time until which a lease is certainly valid, from the end of its take."""
        unknown_ns = math.inf if self.config.get("session_ttr", 0) is None else -math.inf
        ends = [self.session_ends_ns.get(held.session, unknown_ns)]
        ends += [one.invoked_ns for one in held.ends()]
        ends += [one.invoked_ns for one in task.strays if one.may_have_happened]
        ends += [
            one.invoked_ns
            for one in task.deletions + task.burials + self.sweeps_of(task.tube)
            if one.may_have_happened and one.ended_ns >= held.invoked_ns
        ]
        ends.append(self._expires_ns(task, held))
        ends.append(self.lives_until_ns(task))
        return min(ends)

    def _expires_ns(self, task: TaskHistory, held: Delivery) -> float:
        ttr = held.take.answer.get("ttr", self.tube(task.tube).get("ttr"))
        if ttr is None:
            return math.inf
        until = held.invoked_ns + ttr * SECOND_NS
        for one in held.settlements:
            if one.f == "touch" and one.is_ok:
                until += one.value.get("increment", 0) * SECOND_NS
                if one.value.get("restart"):
                    until = max(until, one.invoked_ns + ttr * SECOND_NS)
        return until - self.slack_ns

    def lives_until_ns(self, task: TaskHistory) -> float:
        """Return the earliest end of the time to live."""
        ends = [math.inf]
        for put in task.puts:
            ttl = put.value.get("ttl", self.tube(task.tube).get("ttl"))
            if ttl is not None:
                lives = put.value.get("delay", 0) + ttl
                ends.append(put.invoked_ns + lives * SECOND_NS - self.slack_ns)
        if not task.puts and self.tube(task.tube).get("ttl") is not None:
            return -math.inf
        return min(ends)

    def sweeps_of(self, tube: str) -> list[Request]:
        """Return the requests that changed all tasks of a tube."""
        return [one for one in self.sweeps if one.value["tube"] == tube]

    def _index_puts(self) -> None:
        for put in self.puts:
            self.puts_of_uid[put.value["uid"]].append(put)
            for number in {one.answer["id"] for one in put.oks}:
                self.task(put.value["tube"], number).puts.append(put)

    def _index_takes(self) -> None:
        leases: dict[tuple[str, int, int], Delivery] = {}
        for take in self.takes:
            for one in take.oks:
                number = one.answer.get("id")
                if number is None:
                    continue
                tube = one.answer.get("tube") or take.value["tube"]
                token = one.answer.get("token", 0)
                session = take.value.get("session") or take.process
                known = leases.get((tube, number, token))
                if known is not None and token and known.take is take:
                    continue
                delivery = Delivery(take, token, session)
                leases[tube, number, token] = delivery
                task = self.task(tube, number)
                task.deliveries.append(delivery)
                if not any(put.is_ok for put in task.puts):
                    self._add_unknown_puts(task, one.answer.get("uid", ""))
        for task in self.tasks.values():
            task.deliveries.sort(key=lambda one: (one.token, one.invoked_ns))

    def _add_unknown_puts(self, task: TaskHistory, uid: str) -> None:
        """Add the puts of unknown outcome that may have made a task, by tube and content."""
        for put in self.puts_of_uid.get(uid, ()):
            is_possible = put.may_have_happened and put.value["tube"] == task.tube
            if is_possible and not put.is_ok and put not in task.puts:
                task.puts.append(put)

    def _index_settlements(self) -> None:
        for one in requests_of(self.history.of(*SETTLEMENTS)):
            task = self.task(one.value["tube"], one.value["id"])
            if one.f == "bury" and "session" not in one.value and "token" not in one.value:
                task.burials.append(one)
                continue
            token = one.value.get("token")
            mine = [each for each in task.deliveries if each.token == token]
            if mine:
                mine[-1].settlements.append(one)
            else:
                task.strays.append(one)
        for one in requests_of(self.history.of("delete")):
            self.task(one.value["tube"], one.value["id"]).deletions.append(one)

    def _index_observations(self) -> None:
        for peek in self.history.of("peek"):
            self.task(peek.value["tube"], peek.value["id"]).peeks.append(peek)
        for listing in self.history.of("snapshot"):
            if listing.is_ok:
                for item in listing.answer["tasks"]:
                    self.task(listing.value["tube"], item["id"]).listed.append((listing, item))
