"""With any order of events and small limits, no consumer waits beside a task that it wants."""

from functools import partial
from random import Random

import pytest

from taskraft_service.leader import leaving_consumers, waiting_consumer
from taskraft_service.leader import waiters as waiters_module
from tests.service.leader.waiting import CheckedWaiters, Consumer, CountingBoard, add

NAMES = [f"{kind}{number}" for kind in "ab" for number in range(6)]
SOURCES = [("*",), ("a*",), ("b3",), ("a1", "b*"), ("new9", "*5")]


class RandomEvents:
    """Consumers, puts and answers in random order."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.ready = {name: self.random.choice((0, 0, 1)) for name in NAMES}
        self.waiters = CheckedWaiters(CountingBoard())
        self.waiters.board.tasks = self.ready
        self.claims = []
        """Claims without an answer."""
        self.expected = []
        """Tubes of tasks in entries that are not applied."""

    def come(self):
        one_shot, is_selective = (self.random.random() < 0.5 for _ in range(2))
        sources = self.random.choice(SOURCES)
        consumer = Consumer(*sources, one_shot=one_shot, is_selective=is_selective)
        consumer.yielding = self.random.sample(NAMES, 3)
        add(self.waiters, consumer)

    def leave(self):
        """End the time of a consumer, which is removed when it may leave."""
        consumers = [one for one in self.waiters if one.one_shot]
        if consumers:
            consumer = self.random.choice(consumers)
            self.waiters.leaving.add(consumer, partial(self.waiters.remove, consumer))

    def put(self):
        self.expected.append(self.random.choice([*NAMES, "new9", f"b{self.random.randrange(99)}"]))
        self.waiters.expect_ready(self.expected[-1], 1)

    def propose(self):
        self.claims += self.waiters.entry()

    def apply(self):
        for name in self.expected:
            self.ready[name] = self.ready.get(name, 0) + 1
            self.waiters.forget_expected(name, 1)
        for claim in self.claims:
            self._answer(claim)
        self.expected.clear()
        self.claims.clear()

    def _answer(self, claim):
        consumer = claim.consumer
        tubes = [name for name in claim.encoded.command.tubes if self.ready.get(name)]
        suits = bool(tubes) and not (consumer.is_selective and self.random.random() < 0.7)
        consumer.claimed -= claim.tasks_max
        consumer.credit -= suits
        if suits:
            self.ready[tubes[0]] -= 1
            if consumer.one_shot:
                self.waiters.remove(consumer)
        self.waiters.claim_answered(claim, int(suits))

    def grant(self):
        for consumer in self.waiters:
            if not consumer.one_shot and consumer.wanted_tasks() == 0:
                consumer.credit += 1
                self.waiters.requeue(consumer)

    def finish(self):
        self.waiters.is_woken = True
        while self.waiters.is_woken:
            self.propose()
            self.waiters.is_woken |= bool(self.claims or self.expected)
            self.apply()

    def missed(self):
        """Return the tubes with tasks that a consumer wants and has not tried."""
        waiters = self.waiters
        return [
            (consumer.sources, name)
            for consumer in waiters
            for name in waiters.tubes_of(consumer)
            if consumer.wanted_tasks()
            and self.ready.get(name)
            and waiters._found_empty.get((consumer, name)) != waiters._tubes[name].serial
        ]


@pytest.mark.parametrize("seed", range(40))
def test_no_consumer_waits_beside_a_task_that_it_wants(seed, monkeypatch):
    monkeypatch.setattr(waiters_module, "CLAIM_STEPS_MAX", 3)
    monkeypatch.setattr(waiting_consumer, "CLAIM_STEPS_PER_ENTRY_MAX", 5)
    monkeypatch.setattr(waiters_module, "RECHECK_STEPS_MAX", 2)
    monkeypatch.setattr(waiters_module, "OFFERS_LOOKED_AT", 2)
    monkeypatch.setattr(leaving_consumers, "LEAVE_STEPS_MAX", 2)
    events = RandomEvents(seed)
    actions = (events.come, events.leave, events.put, events.propose, events.apply, events.grant)
    for _ in range(60):
        events.random.choice(actions)()
    events.finish()
    assert events.waiters.looks
    assert events.missed() == []
    assert not events.waiters.leaving.waiting
