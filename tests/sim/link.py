"""Simulate the connections to the peers, with the real send queues and batchers on virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from taskraft_replication.core.types import ConfState, LogIndex, MemberId, Message, Term
from taskraft_replication.driver.preferred_followers import PreferredFollowers
from taskraft_replication.peers.contract import PreferredSet
from taskraft_replication.peers.send_batcher import LinkCapacity, SendBatcher
from taskraft_replication.peers.send_queue import PeerSendQueue
from tests.sim.network import Activity, ActivityKind
from tests.sim.schedule import Event

LONG_STEPS = (1, 40)
"""Minimum and maximum number of steps in which the bytes of a long frame arrive."""
LONG_STEP_US = 20_000

FULL_SHARE = 0.1
FULL_US = (100, 5000)
"""Minimum and maximum time in µs for which a connection is full after a frame."""

OUTBOXES = ((4, 1 << 20), (4096, 3000), (4096, 1 << 25))
"""Limits of a send queue, in messages and bytes; some runs have small limits."""


class Process(Protocol):
    """The member, as its links use it."""

    id: MemberId
    is_in_event: bool

    def later(self, delay_us: int, name: str, run: Callable[[], None]) -> Event: ...

    def carry(self, to: MemberId, frame: list[Message]) -> None: ...

    def carry_activity(self, to: MemberId, activity: Activity) -> None: ...


class Link:
    """The simulated counterpart of ``taskraft_replication.peers.link``."""

    def __init__(
        self,
        process: Process,
        to: MemberId,
        rng: Random,
        leave: Callable[[Link], None],
        long_share: float,
    ) -> None:
        self._process = process
        self._to = to
        self._rng = rng
        self._is_full = False
        self._long_share = long_share
        self._long: list[Message] = []
        """The long frame that is being sent, a few bytes in each step."""
        self._long_event: Event | None = None
        self.leading_term = Term(0)
        self.batcher = SendBatcher(
            PeerSendQueue(*rng.choice(OUTBOXES)), lambda: leave(self), self._later
        )

    def depart(self) -> None:
        """Send the queued messages, now or when the connection has capacity again."""
        for frame in self.batcher.frames(self._capacity):
            has_entries = any(message.entries for message in frame)
            if has_entries and self._long_share and self._rng.random() < self._long_share:
                self._long = frame
                self._send_bytes(self._rng.randint(*LONG_STEPS))
                continue
            self._process.carry(self._to, frame)
            if self._rng.random() < FULL_SHARE:
                self._is_full = True
                self._process.later(self._rng.randint(*FULL_US), "room", self._make_room)

    def _capacity(self) -> LinkCapacity:
        if self._is_full:
            return LinkCapacity.NOTHING
        return LinkCapacity.SMALL if self._long else LinkCapacity.ANYTHING

    def drop_long(self) -> None:
        """Drop the long frame."""
        self._long = []
        if self._long_event is not None:
            self._long_event.cancel()
            self._long_event = None

    def _send_bytes(self, steps: int) -> None:
        """Send bytes of the long frame, or its last bytes if ``steps`` is 0."""
        if steps:
            if self.leading_term:
                self._process.carry_activity(
                    self._to, Activity(ActivityKind.LEADER, self.leading_term)
                )
            self._long_event = self._process.later(
                LONG_STEP_US, "bytes", lambda: self._send_bytes(steps - 1)
            )
            return
        frame, self._long = self._long, []
        self._process.carry(self._to, frame)
        self.depart()

    def _make_room(self) -> None:
        self._is_full = False
        self.depart()

    def _later(self, delay_ms: int, run: Callable[[], None]) -> Event:
        return self._process.later(1000 * delay_ms, "news", run)


class Links:
    """The links of a member between two restarts, with its preferred followers."""

    def __init__(
        self, process: Process, rng: Random, conf_state: ConfState, long_share: float
    ) -> None:
        self._process = process
        self._rng = rng
        self._long_share = long_share
        self._leading_term = Term(0)
        self._links: dict[MemberId, Link] = {}
        self._leaving: list[Link] = []
        """Links with frames that are sent at the end of this event."""
        self._chosen: PreferredSet = None
        self._preferred = PreferredFollowers(process.id, self._choose)
        self.membership_changed(conf_state)

    def send(self, messages: Sequence[Message]) -> list[MemberId]:
        """Queue messages; return the peers whose queue refused one."""
        lost = [message.to for message in messages if not self._to(message.to).batcher.put(message)]
        for link in self._links.values():
            link.batcher.flush_soon()
        return lost

    def _to(self, to: MemberId) -> Link:
        if to not in self._links:
            link = Link(self._process, to, self._rng, self._leave, self._long_share)
            link.leading_term = self._leading_term
            self._links[to] = link
            self._choose(self._chosen)
        return self._links[to]

    def may_delay(self, to: MemberId) -> bool:
        """Return whether entries to a peer may be delayed."""
        return to in self._links and self._links[to].batcher.may_delay

    def depart(self) -> None:
        """Send the frames that are due at the end of this event."""
        leaving, self._leaving = self._leaving, []
        for link in leaving:
            link.depart()

    def received(self, frame: Sequence[Message], commit: LogIndex) -> None:
        """Record which peer has replied."""
        self._preferred.received(frame, commit)

    def membership_changed(self, conf_state: ConfState) -> None:
        """Use another membership from now on."""
        self._preferred.membership_changed(conf_state)

    def set_leading_term(self, term: Term) -> None:
        """Record the term in which this member leads; drop its appends if it does not lead."""
        self._leading_term = term
        for link in self._links.values():
            link.leading_term = term
            if not term:
                link.batcher.drop_bulk()
                link.drop_long()

    def broke(self, to: MemberId) -> None:
        """Drop the messages that are queued for a broken connection."""
        if to in self._links:
            self._links[to].batcher.clear()
            self._links[to].drop_long()

    def _leave(self, link: Link) -> None:
        if self._process.is_in_event:
            self._leaving.append(link)
        else:
            self._process.later(0, "leave", link.depart)

    def _choose(self, chosen: PreferredSet) -> None:
        self._chosen = chosen
        for to, link in self._links.items():
            link.batcher.may_delay = chosen is not None and to not in chosen
