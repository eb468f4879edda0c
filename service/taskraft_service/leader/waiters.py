"""Match consumers that wait with tasks that can be taken, on the leader only.

Nothing of this is replicated. When the proposer builds an entry it asks for claims: the takes of
those consumers that the entry (or what is ready already) can feed. The temporary tubes ask for
theirs. Tasks are estimated, not reserved: a take that finds nothing changes nothing, and the
consumer goes on waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from taskraft_service.languages.patterns import TubePattern, is_pattern
from taskraft_service.leader.waiting_consumer import Claim, WaitingConsumer
from taskraft_service.limits import TAKE_TASKS_MAX

CLAIMS_PER_ENTRY_MAX: Final = 1_000
"""Takes appended to one entry; the rest comes with the next."""


class ReadyCounts(Protocol):
    """What the waiters see of the queue."""

    def ready(self, tube: str) -> int:
        """Return how many tasks of a tube could be taken now; 0 if there is no such tube."""

    def names(self) -> Sequence[str]:
        """Return the names of all tubes."""


def anywhere(_tube: str) -> bool:
    """Tell that takes from any tube can be done."""
    return True


@dataclass(slots=True)
class _Tube:
    """What is known of one tube that consumers wait on.

    ``line`` holds the consumers in order of their arrival; a subscription without credit is not in
    it. ``promised`` counts the tasks hoped for by claims without answer, ``coming`` the tasks that
    entries in flight may make ready.
    """

    line: dict[WaitingConsumer, None]
    consumers: int = 0
    """How many wait on it, in line or not."""
    promised: int = 0
    coming: int = 0
    serial: int = 0
    """Grows whenever tasks may have become ready."""


def _suits(consumer: WaitingConsumer, patterns: Sequence[TubePattern], name: str) -> bool:
    """Return whether a consumer may see a tube and one of its patterns matches the name."""
    return consumer.allows(name) and any(pattern.matches(name) for pattern in patterns)


class Waiters:
    """The consumers that wait, in line per tube: first come, first served."""

    def __init__(self, board: ReadyCounts) -> None:
        self._board = board
        self._tubes: dict[str, _Tube] = {}
        self._consumers: dict[WaitingConsumer, list[str]] = {}
        self._patterns: dict[WaitingConsumer, list[TubePattern]] = {}
        self._dry: dict[tuple[WaitingConsumer, str], int] = {}
        """Serial of the tube when a claim of the consumer found nothing in it."""
        self._hot: dict[str, None] = {}
        """Tubes to look at when the next entry is built, in a fixed order."""
        self._stirred: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._consumers)

    def waiting_count(self, tube: str) -> int:
        """Return how many consumers wait on a tube."""
        known = self._tubes.get(tube)
        return len(known.line) if known else 0

    def tubes_with_consumers(self) -> Sequence[str]:
        """Return the tubes on which consumers wait, also those that do not exist."""
        return [name for name, known in self._tubes.items() if known.line]

    def __iter__(self) -> Iterator[WaitingConsumer]:
        return iter(list(self._consumers))

    def listen(self, stirred: Callable[[], None]) -> None:
        """Call ``stirred`` whenever a consumer that was answered wants more, wherever that is."""
        self._stirred = stirred

    # ------------------------------------------------------------------- consumers come and go

    def add(self, consumer: WaitingConsumer) -> None:
        """Let a consumer wait, behind those that wait already."""
        assert consumer not in self._consumers
        exact = [source for source in consumer.sources if not is_pattern(source)]
        patterns = [TubePattern(source) for source in consumer.sources if is_pattern(source)]
        self._consumers[consumer] = []
        for name in exact:
            self._join(consumer, name)
        if patterns:
            self._patterns[consumer] = patterns
            for name in self._board.names():
                if name not in exact and _suits(consumer, patterns, name):
                    self._join(consumer, name)

    def _join(self, consumer: WaitingConsumer, name: str) -> None:
        known = self._tube(name)
        if name not in self._consumers[consumer]:
            self._enlist(consumer, name, known)
        self._hot[name] = None

    def _enlist(self, consumer: WaitingConsumer, name: str, known: _Tube) -> None:
        self._consumers[consumer].append(name)
        known.consumers += 1
        known.line[consumer] = None

    def _tube(self, name: str) -> _Tube:
        """Return what is known of a tube; a new one finds the consumers whose patterns match."""
        known = self._tubes.get(name)
        if known is None:
            known = self._tubes[name] = _Tube({})
            for consumer, patterns in self._patterns.items():
                if _suits(consumer, patterns, name):
                    self._enlist(consumer, name, known)
        return known

    def remove(self, consumer: WaitingConsumer) -> None:
        """Let a consumer go; claims without answer still have to be answered."""
        for name in self._consumers.pop(consumer, ()):
            known = self._tubes[name]
            known.consumers -= 1
            known.line.pop(consumer, None)
            self._dry.pop((consumer, name), None)
            self._forget_idle(name, known)
        self._patterns.pop(consumer, None)

    def _forget_idle(self, name: str, known: _Tube) -> None:
        if not (known.consumers or known.promised or known.coming or self._patterns):
            del self._tubes[name]
            self._hot.pop(name, None)

    def requeue(self, consumer: WaitingConsumer) -> None:
        """Let a consumer that wants more (it granted credit) back in line, at the end."""
        for name in self._consumers.get(consumer, ()):
            self._tubes[name].line.setdefault(consumer, None)
            self._hot[name] = None

    def filter_changed(self, consumer: WaitingConsumer) -> None:
        """Let a consumer that looks for other tasks now back in line.

        What has had nothing for it may have something, also where a claim of before has no answer
        yet: its tubes are looked at as if tasks had come.
        """
        for name in self._consumers.get(consumer, ()):
            self._tubes[name].serial += 1
        self.requeue(consumer)

    def tube_dropped(self, tube: str) -> None:
        """Tell those who wait on a tube that it is gone."""
        known = self._tubes.get(tube)
        for consumer in list(known.line) if known is not None else ():
            consumer.tube_dropped(tube)

    # --------------------------------------------------------------------------- tasks come

    def expect_ready(self, tube: str, tasks: int) -> None:
        """Say that the entry being built may make so many tasks of a tube ready."""
        if tube in self._tubes or self._patterns:
            known = self._tube(tube)
            known.coming += tasks
            known.serial += 1
            self._hot[tube] = None

    def forget_expected(self, tube: str, tasks: int) -> None:
        """Say that an entry announced by ``feed`` was applied, or was lost."""
        known = self._tubes.get(tube)
        if known is not None:
            # A tube may have been forgotten and met again in between.
            known.coming = max(0, known.coming - tasks)
            self._hot[tube] = None
            self._forget_idle(tube, known)

    # --------------------------------------------------------------------------- takes go

    def claims(self, among: Callable[[str], bool] = anywhere) -> list[Claim]:
        """Return the takes that can be done now, from tubes ``among`` those that are served."""
        claims: list[Claim] = []
        for name in list(self._hot):
            if not among(name):
                continue
            known = self._tubes.get(name)
            if known is None or not known.line or not self._claim_from(name, claims, among):
                self._hot.pop(name, None)
            if len(claims) >= CLAIMS_PER_ENTRY_MAX:
                break
        return claims

    def _claim_from(self, name: str, claims: list[Claim], among: Callable[[str], bool]) -> bool:
        """Add claims on one tube; tell whether it has to be looked at again for the next entry."""
        known = self._tubes[name]
        served: list[WaitingConsumer] = []
        free = self._free(name, known)
        for consumer in known.line:
            if free <= 0 or len(claims) >= CLAIMS_PER_ENTRY_MAX:
                break
            if self._dry.get((consumer, name)) == known.serial:
                continue
            wanted = min(consumer.wanted_tasks(), TAKE_TASKS_MAX)
            if wanted > 0:
                claim = self._claim(consumer, name, wanted, among)
                claims.append(claim)
                free -= claim.shares[name]
            served.append(consumer)
        for consumer in served:
            self._move_back(consumer)
        return free > 0 and len(claims) >= CLAIMS_PER_ENTRY_MAX

    def _free(self, name: str, known: _Tube) -> int:
        return self._board.ready(name) + known.coming - known.promised

    def _claim(
        self, consumer: WaitingConsumer, first: str, wanted: int, among: Callable[[str], bool]
    ) -> Claim:
        """Return a claim on ``first`` and on all served tubes of the consumer that have something.

        From which of them the tasks come is decided when the entry is applied, by their order or by
        weights; the shares are a guess.
        """
        shares: dict[str, int] = {}
        offering: list[str] = []
        names = self._consumers[consumer]
        hoped = 0
        for name in names if len(names) > 1 else (first,):
            known = self._tubes[name]
            if name != first and (
                not among(name) or self._dry.get((consumer, name)) == known.serial
            ):
                continue
            free = self._free(name, known)
            if free > 0 or name == first:
                offering.append(name)
            share = min(wanted - hoped, free)
            if name == first:
                share = max(share, 1)
            if share > 0:
                shares[name] = share
                hoped += share
        if consumer.is_selective:
            # Whether there is something for it only the take finds out: nobody waits for that.
            shares = dict.fromkeys(shares, 0)
        serials = {}
        for name, share in shares.items():
            known = self._tubes[name]
            known.promised += share
            serials[name] = known.serial
        tasks_max = min(hoped, wanted)
        return Claim(consumer, consumer.take(offering, tasks_max), tasks_max, shares, serials)

    def _move_back(self, consumer: WaitingConsumer) -> None:
        """Put a subscription that was served at the end of its lines, or out of them."""
        if consumer.one_shot:
            return
        is_wanting = consumer.wanted_tasks() > 0
        for name in self._consumers[consumer]:
            line = self._tubes[name].line
            line.pop(consumer, None)
            if is_wanting:
                line[consumer] = None

    def claim_answered(self, claim: Claim, tasks: int) -> None:
        """Take note that a claim was answered with so many tasks, or was lost (0)."""
        found_nothing = tasks == 0
        alive = claim.consumer in self._consumers
        for name, share in claim.shares.items():
            known = self._tubes.get(name)
            if known is None:
                # Nothing was hoped for of a choosy consumer, and it has gone: so may the tube have.
                assert not share
                assert not alive
                continue
            known.promised -= share
            assert known.promised >= 0
            self._hot[name] = None
            if alive and found_nothing:
                self._dry[claim.consumer, name] = claim.serials[name]
            if not alive:
                self._forget_idle(name, known)
        if alive and claim.consumer.wanted_tasks() > 0:
            for name in self._consumers[claim.consumer]:
                self._tubes[name].line.setdefault(claim.consumer, None)
                self._hot[name] = None
            self._stirred()
