"""Answers with payloads: few are kept, because each can have 16 MiB."""

import weakref

from taskraft_console.data.shared_reads import SharedReads
from taskraft_console.data.task_reads import PAYLOADS_MAX, TaskReads
from tests.turns import turns_until


class Answer:
    """A task with an address in memory that the test can follow."""


class Cluster:
    """A cluster that remembers which of its answers are still in memory."""

    def __init__(self):
        self.answers = []

    def tube(self, _):
        return self

    async def peek(self, *_, **__):
        answer = Answer()
        self.answers.append(weakref.ref(answer))
        return answer

    def kept(self):
        return sum(answer() is not None for answer in self.answers)


async def test_few_payloads_are_kept_and_a_change_forgets_them():
    cluster = Cluster()
    reads = TaskReads(cluster, SharedReads(), 1.0)
    for task_id in range(PAYLOADS_MAX * 3):
        await reads.task("mail", task_id, payload=True)
    assert cluster.kept() == PAYLOADS_MAX
    reads.forget()
    await turns_until(lambda: cluster.kept() == 0)


async def test_tasks_without_payload_are_kept_like_other_answers():
    cluster = Cluster()
    reads = TaskReads(cluster, SharedReads(), 1.0)
    for task_id in range(PAYLOADS_MAX * 3):
        await reads.task("mail", task_id, payload=False)
    assert cluster.kept() == PAYLOADS_MAX * 3
