"""Consumers and a queue for tests of the waiting consumers."""

from taskraft_service.entries.encoded_command import EncodedCommand
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
