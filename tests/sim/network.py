"""Simulate a network that delays, loses, duplicates, reorders, partitions and stalls."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from taskraft_replication.core.types import MemberId, Message
from tests.sim.schedule import Event, Schedule

Link = tuple[MemberId, MemberId]
Frame = list[Message]


class Network:
    """The links between members, one per direction.

    A link keeps the order of its frames unless ``reorder`` applies, like a stream that breaks and
    reconnects. Frames in flight to a member that ends may be lost with its connections.
    """

    def __init__(
        self,
        schedule: Schedule,
        rng: Random,
        deliver: Callable[[Link, Frame, int], None],
        lost: Callable[[MemberId, MemberId], None],
    ) -> None:
        self._schedule = schedule
        self._rng = rng
        self._deliver = deliver
        self._lost = lost
        self._busy_until: dict[Link, int] = {}
        self._under_way: dict[Link, list[Event]] = {}
        self._stalled: dict[Link, list[tuple[Frame, int]]] = {}
        self.cut: set[Link] = set()
        self.drop = 0.0
        self.double = 0.0
        self.reorder = 0.0
        self.delay_us = (200, 2000)
        self.frames = 0
        self.messages = 0

    def send(self, link: Link, frame: Frame, incarnation: int) -> None:
        """Accept messages that travel together, from the given incarnation of a member."""
        self.frames += 1
        self.messages += len(frame)
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

    def _carry(self, link: Link, frame: Frame, incarnation: int) -> None:
        arrival = self._schedule.now_us + self._rng.randint(*self.delay_us)
        if self._rng.random() >= self.reorder:
            arrival = max(arrival, self._busy_until.get(link, 0))
            self._busy_until[link] = arrival
        event = self._schedule.after(
            arrival - self._schedule.now_us,
            f"{link[0]}->{link[1]} {', '.join(message.kind.value for message in frame)}",
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
        self.delay_us = (200, 2000)
        self.release()
