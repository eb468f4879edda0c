"""The digests find each changed record, and depend on nothing but the content."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule

from taskraft_service.queue.persistence.record_digest import PARTS, digest_records, part_of
from taskraft_service.queue.store.keys import prefix_stop
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.test_replicas import ReplicaMachine


def digests_of(store):
    steps = digest_records(lambda prefix: store.scan(prefix, prefix_stop(prefix)))
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


class DigestMachine(ReplicaMachine):
    """Three replicas whose records are compared, with any batches of writes and crashes."""

    @rule()
    def records_agree(self):
        for store, queue in zip(self.stores, self.queues, strict=True):
            store.write(queue.collect_writes())
        self.unwritten = []
        first, *others = [digests_of(store) for store in self.stores]
        assert others == [first, first]


DigestMachine.TestCase.settings = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestDigests = DigestMachine.TestCase

TUBE_KEY = b"u\x00\x00\x00\x11"
TASK_KEY = b"t\x00\x00\x00\x11" + bytes(7) + b"\x01"
PLAIN = bytes(60)
PAIRS = {
    TUBE_KEY: b"tube",
    TASK_KEY: PLAIN,
    b"y" + TASK_KEY[1:]: b"payload",
    b"k\x00\x00\x00\x11key": b"1",
    b"s" + bytes(8): b"session",
    b"cnightly": b"schedule",
    b"ggroup": b"group",
}


def test_each_changed_record_changes_its_part_only():
    before = digests_of(MemoryStore(PAIRS))
    assert len(before) == PARTS
    for key in PAIRS.keys() - {TUBE_KEY}:
        part = part_of(0x11) if key[:1] in b"tyk" else 0
        for changed in (
            {**PAIRS, key: PAIRS[key][:-1] + b"?"},
            {each: value for each, value in PAIRS.items() if each != key},
        ):
            after = digests_of(MemoryStore(changed))
            assert [each for each in range(PARTS) if before[each] != after[each]] == [part]


def test_records_of_a_removed_tube_do_not_count():
    rest = {key: value for key, value in PAIRS.items() if key[:1] not in b"tyku"}
    without_tube = {key: value for key, value in PAIRS.items() if key != TUBE_KEY}
    assert digests_of(MemoryStore(without_tube)) == digests_of(MemoryStore(rest))


def test_the_session_of_a_task_does_not_count():
    attempted = bytes((1, 8)) + bytes(48) + bytes(60)
    plain = {**PAIRS, TASK_KEY: attempted}
    seen = set()
    for place in range(len(attempted)):
        changed = attempted[:place] + b"\x01" + attempted[place + 1 :]
        if place != 1 and digests_of(MemoryStore({**PAIRS, TASK_KEY: changed})) == digests_of(
            MemoryStore(plain)
        ):
            seen.add(place)
    assert len(seen - {0}) == 8
