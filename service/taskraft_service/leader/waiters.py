"""Match waiting consumers with tasks that can be leased, on the leader only.

Nothing here is replicated. When the proposer builds an entry, it asks this module for claims: takes
for the waiting consumers that the entry, or tasks that are already ready, can serve. The temporary
tubes ask for their claims in the same way. Claims are based on estimates and reserve no tasks. A
take that finds nothing changes nothing, and its consumer keeps waiting.

A consumer can wait on all tubes. So a claim looks only at the tubes that may have tasks that no
claim expects, and the claims of one entry take a limited number of steps. The rest of the tubes is
checked for the next entry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from taskraft_service.languages.patterns import compiled, is_pattern
from taskraft_service.leader.leaving_consumers import LeavingConsumers, Offer
from taskraft_service.leader.ready_counts import ReadyCounts
from taskraft_service.leader.waiting_consumer import (
    CLAIM_STEPS_MAX,
    CLAIM_STEPS_PER_ENTRY_MAX,
    CONSUMERS_PER_STEP,
    NAMES_FOUND_PER_STEP,
    NAMES_PER_STEP,
    Claim,
    EntryClaims,
    WaitingConsumer,
    scan_steps,
)
from taskraft_service.leader.waiting_patterns import WaitingPatterns
from taskraft_service.leader.waiting_places import WaitingPlaces
from taskraft_service.leader.waiting_tube import WaitingTube
from taskraft_service.limits import TAKE_TASKS_MAX
from taskraft_service.machine.sliced_calls import SlicedCalls

RECHECK_STEPS_MAX: Final = CLAIM_STEPS_PER_ENTRY_MAX // 2
"""Number of steps of an entry after which it rechecks no further consumer, but makes claims."""
OFFERS_LOOKED_AT: Final = 100
"""Number of tubes that are looked at for an offer to a consumer whose time is over."""
LEFT_AT_ONCE: Final = 1_000
"""Number of wait queues that all consumers together leave in one turn of the event loop; each takes
about 0.3 us."""
LEFT_DIRECTLY_MAX: Final = 20
"""Number of tubes up to which a consumer leaves all its wait queues when it is removed."""


class Waiters:
    """The waiting consumers, in FIFO order per tube."""

    def __init__(self, ready_counts: ReadyCounts) -> None:
        self._ready_counts = ready_counts
        self._tubes: dict[str, WaitingTube] = {}
        self._consumers: dict[WaitingConsumer, dict[str, int]] = {}
        """The tubes of each consumer in order, with the place of each tube."""
        self._places: list[int] = []
        """The places as objects that the consumers share, which saves memory."""
        self.patterns: Final = WaitingPatterns()
        self.places: Final = WaitingPlaces()
        self._found_empty: dict[tuple[WaitingConsumer, str], int] = {}
        """For each consumer and tube, the serial of the tube when a claim found no task."""
        self.to_check: dict[str, None] = {}
        """Tubes to check when the next entry is built, in a deterministic order; only this class
        changes it."""
        self._to_compare: dict[str, None] = {}
        """New tubes that the next entry compares with all patterns before it checks them."""
        self._may_offer: dict[str, None] = {}
        """Tubes that may have tasks that no claim expects. The tubes to check are among them."""
        self.to_recheck: dict[WaitingConsumer, None] = {}
        """Consumers that want tasks again; the next entry checks all tubes that may offer some.
        Only this class changes the dictionary."""
        self._on_want: Callable[[], None] = lambda: None
        self._left: SlicedCalls[str] = SlicedCalls(LEFT_AT_ONCE)
        self.leaving: Final = LeavingConsumers(self._offer_for)
        """Consumers whose time is over."""

    def __len__(self) -> int:
        return len(self._consumers)

    def waiting_count(self, tube: str) -> int:
        """Return the number of consumers that wait on a tube, with those that are just leaving."""
        known = self._tubes.get(tube)
        return len(known.line) if known else 0

    def in_line(self, tube: str) -> Sequence[WaitingConsumer]:
        """Return the wait queue of a tube in the order in which the consumers are served.

        Subscriptions without credit are not in the wait queue.
        """
        known = self._tubes.get(tube)
        return () if known is None else tuple(known.in_order())

    def waits_on(self, consumer: WaitingConsumer, tube: str) -> bool:
        """Return whether a consumer waits on a tube, with or without credit."""
        return tube in self._consumers.get(consumer, ())

    def tubes_with_consumers(self) -> Sequence[str]:
        """Return the tubes on which consumers wait, including tubes that do not exist."""
        return [name for name, known in self._tubes.items() if known.line]

    def __iter__(self) -> Iterator[WaitingConsumer]:
        return iter(list(self._consumers))

    def listen(self, on_want: Callable[[], None]) -> None:
        """Register ``on_want``, called when a consumer wants more tasks after an answered claim."""
        self._on_want = on_want

    # ------------------------------------------------------------------- consumers come and go

    def add(self, consumer: WaitingConsumer) -> None:
        """Add a consumer at the end of the wait queues of its tubes."""
        assert consumer not in self._consumers
        exact = [source for source in consumer.sources if not is_pattern(source)]
        self._consumers[consumer] = {}
        for name in exact:
            self._add_to_tube(consumer, name)
        if len(exact) < len(consumer.sources):
            patterns = compiled(tuple(consumer.sources))
            names = self._ready_counts.tube_names()
            self.patterns.add(consumer, patterns, names, self._tubes)
        own = len(self._consumers[consumer])
        self.places.set(consumer, own + self.patterns.candidates_of(consumer))
        self.add_more(consumer)

    def add_more(self, consumer: WaitingConsumer) -> bool:
        """Add a consumer to further tubes, up to a limit of steps; return whether some are left."""
        is_left = self.patterns.add_candidates(consumer, self._add_to_tube)
        if not is_left:
            self.places.set(consumer, self.count_of_tubes(consumer))
        return is_left

    def tubes_of(self, consumer: WaitingConsumer) -> Sequence[str]:
        """Return the tubes on which a consumer waits, including tubes that do not exist."""
        return tuple(self._consumers.get(consumer, ()))

    def count_of_tubes(self, consumer: WaitingConsumer) -> int:
        """Return the number of tubes on which a consumer waits."""
        return len(self._consumers.get(consumer, ()))

    def _add_to_tube(self, consumer: WaitingConsumer, name: str) -> None:
        known = self._tube(name)
        if name not in self._consumers[consumer]:
            self._enqueue(consumer, name, known)
        self._check(name)

    def _check(self, name: str) -> None:
        self.to_check[name] = self._may_offer[name] = None

    def _enqueue(self, consumer: WaitingConsumer, name: str, known: WaitingTube) -> None:
        own = self._consumers[consumer]
        if len(own) == len(self._places):
            self._places.append(len(own))
        own[name] = self._places[len(own)]
        known.add(consumer, yields=consumer.yields(name))

    def _tube(self, name: str) -> WaitingTube:
        """Return the bookkeeping of a tube; a new tube is compared with the patterns later."""
        known = self._tubes.get(name)
        if known is None:
            known = self._tubes[name] = WaitingTube({})
            if self.patterns.by_consumer and self.patterns.is_new(name):
                self._to_compare[name] = None
        return known

    def _compare_new(self, claims: EntryClaims) -> None:
        """Add the consumers whose patterns match new tubes to these tubes, up to a limit of steps.

        The next entry compares the rest of the tubes.
        """
        for name in list(self._to_compare):
            if claims.is_full:
                break
            del self._to_compare[name]
            claims.steps += self.patterns.compare_steps
            known = self._tubes[name]
            # Consumers that came after the tube are behind those that waited before.
            later, known.line = known.line, {}
            for consumer in self.patterns.compare(name):
                if name not in self._consumers[consumer]:
                    self._enqueue(consumer, name, known)
                    self.places.add_one(consumer)
            known.line.update(later)
            self._forget_idle(name, known)

    def remove(self, consumer: WaitingConsumer) -> None:
        """Remove a consumer; its unanswered claims must still be answered.

        A consumer of more than ``LEFT_DIRECTLY_MAX`` tubes leaves their wait queues in later turns
        of the event loop, because many consumers can be removed in one turn.
        """
        names = self._consumers.pop(consumer, {})
        if len(names) > LEFT_DIRECTLY_MAX:
            self._left.add(partial(self._leave_tube, consumer), names)
        else:
            for name in names:
                self._leave_tube(consumer, name)
        self.patterns.remove(consumer)
        self.places.set(consumer, 0)
        self.to_recheck.pop(consumer, None)
        self.leaving.discard(consumer)

    def _leave_tube(self, consumer: WaitingConsumer, name: str) -> None:
        """Remove a consumer from the wait queue of a tube."""
        known = self._tubes[name]
        known.remove(consumer)
        self._found_empty.pop((consumer, name), None)
        self._forget_idle(name, known)

    def _offer_for(self, consumer: WaitingConsumer) -> Offer:
        """Look for a tube from which the next check of the tubes may claim for a consumer.

        After ``OFFERS_LOOKED_AT`` tubes without a task, the others are taken to have one.
        """
        if consumer.wanted_tasks() == 0:
            return Offer(exists=False, steps=1)
        own = self._consumers.get(consumer, {})
        checked = self._may_offer if consumer in self.to_recheck else self.to_check
        tables: tuple[Collection[str], ...] = (own, checked)
        few, many = sorted(tables, key=len)
        looked_at = 0
        for looked_at, name in enumerate(filter(many.__contains__, few), 1):
            known = self._tubes[name]
            is_untried = self._found_empty.get((consumer, name)) != known.serial
            if looked_at > OFFERS_LOOKED_AT or (is_untried and self._free(name, known) > 0):
                return Offer(exists=True, steps=1 + looked_at)
        return Offer(exists=False, steps=1 + looked_at + len(few) // NAMES_FOUND_PER_STEP)

    def _forget_idle(self, name: str, known: WaitingTube) -> None:
        is_used = known.consumers or known.claimed or known.expected
        if not is_used and name not in self._to_compare:
            del self._tubes[name]
            self.to_check.pop(name, None)
            self._may_offer.pop(name, None)

    def requeue(self, consumer: WaitingConsumer) -> None:
        """Add a consumer that got new credit at the end of the wait queues of its tubes again."""
        if consumer in self._consumers:
            for name in self._consumers[consumer]:
                self._tubes[name].line.setdefault(consumer, None)
            self.to_recheck[consumer] = None

    def filter_changed(self, consumer: WaitingConsumer) -> None:
        """Check the tubes of a consumer whose filter changed as if new tasks had become ready."""
        for name in self._consumers.get(consumer, ()):
            self._tubes[name].serial += 1
        self.requeue(consumer)

    # --------------------------------------------------------------------------- tasks come

    def expect_ready(self, tube: str, tasks: int) -> None:
        """Record that the entry being built may make ``tasks`` tasks of a tube ready."""
        if tube in self._tubes or self.patterns.by_consumer:
            known = self._tube(tube)
            known.expected += tasks
            known.serial += 1
            self._check(tube)

    def forget_expected(self, tube: str, tasks: int) -> None:
        """Subtract tasks recorded by ``expect_ready``, because the entry was applied or lost."""
        known = self._tubes.get(tube)
        if known is not None:
            # The bookkeeping of the tube may have been removed and added again in between.
            known.expected = max(0, known.expected - tasks)
            self._check(tube)
            self._forget_idle(tube, known)

    # --------------------------------------------------------------------------- takes go

    def claims(self, among: Callable[[str], bool] | None = None) -> list[Claim]:
        """Return the claims that can be served now, up to the limits of an entry.

        The listener is called if there is no claim, but more tubes must be checked.

        Args:
            among: accepts the tubes of the claims; None accepts tubes whose takes go through the
                log.
        """
        if not (self.to_check or self.to_recheck or self.leaving.waiting):
            return []
        claims = EntryClaims(among or self._ready_counts.is_logged)
        self._compare_new(claims)
        self._recheck(claims)
        for name in list(self.to_check):
            if name in self._to_compare or not claims.among(name):
                continue
            claims.steps += 1
            known = self._tubes.get(name)
            if known is None or not known.line or not self._claim_from(name, claims):
                self.to_check.pop(name, None)
            if claims.is_full:
                break
        is_left = self.leaving.check() or self.to_recheck or claims.is_full
        if is_left and not claims.claims:
            self._on_want()
        return claims.claims

    def _recheck(self, claims: EntryClaims) -> None:
        """Mark the tubes that may offer tasks to the consumers that want tasks again."""
        for consumer in list(self.to_recheck):
            if claims.steps >= RECHECK_STEPS_MAX:
                break
            del self.to_recheck[consumer]
            own = self._consumers[consumer]
            claims.steps += scan_steps(own, self._may_offer)
            self.to_check.update(dict.fromkeys(self._untried(consumer)))

    def _untried(self, consumer: WaitingConsumer) -> Iterator[str]:
        """Yield the consumer's tubes, in order, that may have tasks that it has not tried."""
        own, may_offer = self._consumers[consumer], self._may_offer
        names: Iterable[str] = filter(may_offer.__contains__, own)
        if len(may_offer) // NAMES_PER_STEP < len(own) // NAMES_FOUND_PER_STEP:
            names = sorted(own.keys() & may_offer.keys(), key=own.__getitem__)
        for name in names:
            if self._found_empty.get((consumer, name)) != self._tubes[name].serial:
                yield name

    def _claim_from(self, name: str, claims: EntryClaims) -> bool:
        """Add claims on one tube; return whether the next entry must check the tube again."""
        known = self._tubes[name]
        free = self._free(name, known)
        if free <= 0:
            self._may_offer.pop(name, None)
            return False
        served: list[WaitingConsumer] = []
        for consumer in self._in_order(known, claims):
            if free <= 0:
                break
            # Without the first condition, a full entry could end at the same place each time.
            if served and claims.is_full:
                known.next_consumer = consumer
                break
            claims.steps += 1
            has_left = consumer not in self._consumers
            if has_left or self._found_empty.get((consumer, name)) == known.serial:
                continue
            wanted = min(consumer.wanted_tasks(), TAKE_TASKS_MAX)
            if wanted > 0:
                claim = self._claim(consumer, name, wanted, claims)
                claims.add(claim)
                free -= claim.shares[name]
            elif consumer.one_shot:
                continue
            served.append(consumer)
            if not consumer.one_shot:
                claims.steps += scan_steps(self._consumers[consumer])
        for consumer in served:
            self._move_back(consumer)
        return known.next_consumer is not None

    def _in_order(self, known: WaitingTube, claims: EntryClaims) -> Iterable[WaitingConsumer]:
        """Return the wait queue of a tube, from the place where the last entry was full."""
        consumers = known.in_order()
        if consumers is not known.line:
            claims.steps += len(consumers) // CONSUMERS_PER_STEP
        known.next_consumer = None
        return consumers

    def _free(self, name: str, known: WaitingTube) -> int:
        return self._ready_counts.ready_count(name) + known.expected - known.claimed

    def _claim(
        self, consumer: WaitingConsumer, first: str, wanted: int, claims: EntryClaims
    ) -> Claim:
        """Return a claim on ``first`` and on the consumer's other accepted tubes with free tasks.

        The take decides from which of these tubes the tasks come when it is applied, by tube order
        or by weights. The shares are only an estimate.
        """
        shares: dict[str, int] = {}
        offering: list[str] = []
        estimated = 0
        for name in self._tubes_for(consumer, first, claims):
            known = self._tubes[name]
            free = self._free(name, known)
            if free > 0 or name == first:
                offering.append(name)
            else:
                self._may_offer.pop(name, None)
            share = min(wanted - estimated, free)
            if name == first:
                share = max(share, 1)
            if share > 0:
                shares[name] = share
                estimated += share
        if consumer.is_selective:
            # Only the applied take determines which tasks suit the consumer, so the claim has no
            # share. The take looks for a task in all its tubes.
            shares = dict.fromkeys(offering, 0)
        serials = {}
        for name, share in shares.items():
            known = self._tubes[name]
            known.claimed += share
            serials[name] = known.serial
        # More tasks may be ready when the take is applied, for example because the entry frees a
        # sub-queue. A consumer that leaves with its first tasks takes them too.
        tasks_max = wanted if consumer.one_shot else estimated
        encoded = consumer.take(offering, tasks_max)
        return Claim(consumer, encoded, tasks_max, estimated, first, shares, serials)

    def _tubes_for(
        self, consumer: WaitingConsumer, first: str, claims: EntryClaims
    ) -> Iterator[str]:
        """Yield ``first`` and the consumer's other accepted tubes that may have free tasks.

        The tubes are in the order of the consumer, up to a number of steps.
        """
        own = self._consumers[consumer]
        if len(own) == 1:
            yield first
            return
        few = len(self._may_offer) // NAMES_PER_STEP
        claims.steps += 1 + min(few, len(own) // NAMES_FOUND_PER_STEP)
        most = claims.steps + CLAIM_STEPS_MAX
        has_first = False
        for name in self._untried(consumer):
            if claims.steps >= most:
                break
            known = self._tubes[name]
            claims.steps += 1 if consumer not in known.yielding else 1 + len(known.line)
            if name == first:
                has_first = True
                yield name
            elif claims.among(name) and not self._has_precedence(consumer, name, known):
                yield name
        if not has_first:
            yield first

    def _has_precedence(self, consumer: WaitingConsumer, name: str, known: WaitingTube) -> bool:
        """Return whether a consumer yields on a tube to another one that may accept its tasks."""
        return any(
            other in self._consumers
            and other.wanted_tasks() > 0
            and self._found_empty.get((other, name)) != known.serial
            for other in known.ahead_of(consumer)
        )

    def _move_back(self, consumer: WaitingConsumer) -> None:
        """Move a served subscription to the end of its wait queues.

        A subscription without credit leaves the wait queues.
        """
        if consumer.one_shot:
            return
        is_wanting = consumer.wanted_tasks() > 0
        for name in self._consumers[consumer]:
            line = self._tubes[name].line
            line.pop(consumer, None)
            if is_wanting:
                line[consumer] = None

    def claim_answered(self, claim: Claim, tasks: int, *, cut_short: bool = False) -> None:
        """Record that a claim was answered with ``tasks`` tasks, or was lost (0).

        After a take that was ``cut_short``, another claim tries the other tubes of the consumer.
        """
        found_nothing = tasks == 0
        alive = claim.consumer in self._consumers
        for name, share in claim.shares.items():
            known = self._tubes.get(name)
            if known is None:
                # Claims of selective consumers have no share, so the tube may have been removed.
                assert not share
                assert not alive
                continue
            if share:
                known.claimed -= share
                assert known.claimed >= 0
                self._check(name)
            if alive and found_nothing and (name == claim.first or not cut_short):
                self._found_empty[claim.consumer, name] = claim.serials[name]
            if not alive:
                self._forget_idle(name, known)
        if alive and claim.consumer.wanted_tasks() > 0:
            if claim.consumer.one_shot:
                self.to_recheck[claim.consumer] = None
            else:
                self.requeue(claim.consumer)
            self._on_want()
