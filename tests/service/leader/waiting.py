"""Consumers and a queue for tests of the waiting consumers."""

from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import ConsumerProfile
from taskraft_service.queue.operations.take import Take


class Board:
    def __init__(self, **ready):
        self.tasks = ready

    def ready_count(self, tube):
        return self.tasks.get(tube, 0)

    def is_logged(self, tube):
        return True

    def tube_names(self):
        return sorted(self.tasks)


class Consumer:
    profile = ConsumerProfile()

    def __init__(self, *sources, wanted_tasks=1, one_shot=True, is_selective=False, yielding=()):
        self.sources = sources
        self.yielding = yielding
        self.one_shot = one_shot
        self.is_selective = is_selective
        self.credit = wanted_tasks
        self.claimed = 0

    def wanted_tasks(self):
        return self.credit - self.claimed

    def allows(self, tube):
        return True

    def yields(self, tube):
        return tube in self.yielding

    def take(self, tubes, tasks_max):
        self.claimed += tasks_max
        return EncodedCommand(Take(tubes, tasks_max=tasks_max), b"", b"")

    def tube_dropped(self, tube):
        self.sources = tuple(source for source in self.sources if source != tube)

    def answered(self, claim, outcome):
        raise AssertionError("the proposer's business")


def answer(waiters, claim, tasks):
    claim.consumer.claimed -= claim.tasks_max
    claim.consumer.credit -= tasks
    waiters.claim_answered(claim, tasks)


def taken(claims):
    return [(claim.consumer, *claim.encoded.command.tubes, claim.tasks_max) for claim in claims]


def add(waiters, consumer):
    waiters.add(consumer)
    while waiters.add_more(consumer):
        pass
    return consumer


class CountingBoard(Board):
    """A board that counts how often the waiting consumers look at a tube."""

    looks = 0

    def ready_count(self, tube):
        self.looks += 1
        return super().ready_count(tube)


class CheckedWaiters(Waiters):
    """Waiters with a caller that asks for claims as often as the proposer does."""

    def __init__(self, board):
        super().__init__(board)
        self.board = board
        self.is_woken = True
        self.looks = []
        """Number of looks at tubes for each entry."""
        self.listen(self._wake)

    def _wake(self):
        self.is_woken = True

    def entry(self):
        """Return the claims of one entry."""
        self.is_woken = False
        before = self.board.looks
        claims = self.claims()
        self.looks.append(self.board.looks - before)
        return claims

    def entries(self, tasks=0):
        """Return the claims of all entries, each answered with a number of tasks."""
        found = []
        while self.is_woken:
            claims = self.entry()
            for claim in claims:
                answer(self, claim, tasks)
            self.is_woken |= bool(claims)
            found += claims
        return found
