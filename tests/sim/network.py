"""Simulate a network that delays, loses, duplicates, reorders, partitions and stalls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random

from taskraft_replication.core.types import MemberId, Message, Term
from tests.sim.schedule import Event, Schedule

Link = tuple[MemberId, MemberId]
MESSAGE_BYTES = 32
"""Size of a message without its entries, in bytes."""


class Frame(list[Message]):
    """Messages that travel together, with the beacon of a frame that has a heartbeat."""

    beacon: bytes | None = None


class ActivityKind(Enum):
    """Role of the member whose activity is reported."""

    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity of a member: bytes of a leader's unfinished frame, or a report of a follower."""

    kind: ActivityKind
    term: Term

    def __str__(self) -> str:
        return f"activity of a {self.kind.value}"


Content = Frame | Activity
"""The frames and notices of activity that travel over a link."""


class Network:
    """The links between members, one per direction.

    A link keeps the order of its frames unless ``reorder`` applies, like a stream that breaks and
    reconnects. Frames in flight to a member that ends may be lost with its connections.
    """

    def __init__(
        self,
        schedule: Schedule,
        rng: Random,
        deliver: Callable[[Link, Content, int], None],
        lost: Callable[[MemberId, MemberId], None],
    ) -> None:
        self._schedule = schedule
        self._rng = rng
        self._deliver = deliver
        self._lost = lost
        self._busy_until: dict[Link, int] = {}
        self._under_way: dict[Link, list[Event]] = {}
        self._stalled: dict[Link, list[tuple[Content, int]]] = {}
        self.cut: set[Link] = set()
        self.drop = 0.0
        self.double = 0.0
        self.reorder = 0.0
        self.delay_us = (200, 2000)
        self.bytes_per_second: int | None = None
        """Rate of each link; None: unlimited."""
        self.frames = 0
        self.messages = 0

    def send(self, link: Link, frame: Content, incarnation: int) -> None:
        """Accept messages that travel together, from the given incarnation of a member."""
        self.frames += 1
        self.messages += 1 if isinstance(frame, Activity) else len(frame)
        if link in self._stalled:
            self._stalled[link].append((frame, incarnation))
            return
        if link in self.cut or self._rng.random() < self.drop:
            if self._rng.random() < 0.5:
                self._lost(*link)
            return
        self._carry(link, frame, incarnation)
        if self._rng.random() < self.double:
            self._carry(link, frame, incarnation)

    def _carry(self, link: Link, frame: Content, incarnation: int) -> None:
        arrival = self._schedule.now_us + self._rng.randint(*self.delay_us)
        if self._rng.random() >= self.reorder:
            arrival = max(arrival, self._busy_until.get(link, 0))
            if self.bytes_per_second is not None:
                arrival += size_of(frame) * 1_000_000 // self.bytes_per_second
            self._busy_until[link] = arrival
        event = self._schedule.after(
            arrival - self._schedule.now_us,
            f"{link[0]}->{link[1]} {_label(frame)}",
            lambda: self._deliver(link, frame, incarnation),
        )
        under_way = self._under_way.setdefault(link, [])
        under_way.append(event)
        if len(under_way) > 100:
            del under_way[:50]

    def reset(self, link: Link) -> None:
        """Break a connection: frames in flight are lost."""
        for event in self._under_way.pop(link, []):
            event.cancel()

    def forget(self, member: MemberId) -> None:
        """Break all connections to a member that ended; frames that it sent may still arrive."""
        for link in [*self._under_way]:
            if link[1] == member:
                self.reset(link)
        for link in self._stalled:
            if link[1] == member:
                self._stalled[link].clear()

    def stall(self, link: Link) -> None:
        """Hold back all frames of a link until it is released."""
        self._stalled.setdefault(link, [])

    def release(self) -> None:
        """Deliver all frames that were held back."""
        stalled, self._stalled = self._stalled, {}
        for link, held in stalled.items():
            for frame, incarnation in held:
                self._carry(link, frame, incarnation)

    def heal(self) -> None:
        """End all faults."""
        self.cut.clear()
        self.drop = self.double = self.reorder = 0.0
        self.bytes_per_second = None
        self.delay_us = (200, 2000)
        self.release()


def size_of(frame: Content) -> int:
    """Return the approximate size of a frame in bytes; entries are the largest part."""
    if isinstance(frame, Activity):
        return MESSAGE_BYTES
    return sum(
        MESSAGE_BYTES + sum(len(entry.data) for entry in message.entries) for message in frame
    )


def _label(frame: Content) -> str:
    if isinstance(frame, Activity):
        return str(frame)
    return ", ".join(message.kind.value for message in frame)
