"""The encoding of each kind of record is stable, because older stores and snapshots contain it.

A change of a layout needs a new ``StateVersion``; the digests here are those of the first format.
"""

from hashlib import sha256

import pytest

from taskraft_service.queue.entities.session import SESSION_RECORD
from taskraft_service.queue.entities.task_codec import EXTRAS, RETRY
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.feed.feed_consumers import CONSUMER_RECORD
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence.state_records import open_state, restore_meta, write_meta
from taskraft_service.queue.state import tube_codec
from taskraft_service.queue.state.dependents import ENDING_RECORD
from taskraft_service.queue.state.failures import FAILURE_RECORD
from taskraft_service.queue.state.group_registry import GROUP_RECORD
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.replicated_settings import SETTINGS
from taskraft_service.queue.state.schedule_registry import SCHEDULE_RECORD
from taskraft_service.versions import StateVersion
from tests.service.queue.kept_answers import decode, encode
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.store import drawn_records
from tests.service.queue.store.drawn_records import Draws

DRAWN = 400
FIRST = StateVersion.V18


def whole(read):
    return lambda record: (read(record), len(record))


def read_tube(record):
    return tube_codec.read_tube(record, MemoryStore(), Limits(), FIRST)


def read_meta(record):
    state = open_state(MemoryStore(), Limits())
    restore_meta(state, record)
    return state


def shown(drawn):
    """Return a value as text, with the same text for lists and tuples."""
    if isinstance(drawn, QueueTube):
        return drawn.view()
    if isinstance(drawn, QueueState):
        return drawn.index, drawn.settings, list(drawn.removals)
    # Entities without a text form are shown by their attributes.
    if type(drawn).__repr__ is object.__repr__:
        drawn = [getattr(drawn, name) for name in type(drawn).__slots__]
    return repr(drawn).translate(dict.fromkeys(map(ord, "[](),")))


def of_table(table):
    return table.write, table.read


CODECS = {
    "retry": of_table(RETRY),
    "extras": of_table(EXTRAS),
    "settings": of_table(SETTINGS),
    "options": of_table(tube_codec.OPTIONS[FIRST]),
    "tube": (lambda tube: tube_codec.write_tube(tube, FIRST), whole(read_tube)),
    "group": of_table(GROUP_RECORD),
    "schedule": of_table(SCHEDULE_RECORD),
    "session": of_table(SESSION_RECORD),
    "consumer": of_table(CONSUMER_RECORD),
    "ending": of_table(ENDING_RECORD),
    "failure": of_table(FAILURE_RECORD),
    "meta": (write_meta, whole(read_meta)),
    "put_answer": (encode, whole(decode)),
    "settle_answer": (encode, whole(decode)),
    "count_answer": (encode, whole(decode)),
    "cancel_answer": (encode, whole(decode)),
    "batch_answer": (encode, whole(decode)),
}
"""Encoder and decoder of each kind of record in ``drawn_records``."""

GOLDEN = {
    "retry": "c70371a6157760e46200e7e988ef2786",
    "extras": "ea365bcdc04f456ec2e24b9f46b65362",
    "settings": "1a2dbc3fa0ffcb2132fdf088c7457dff",
    "options": "71f6afc22844d7f68b10098ba0c561ed",
    "tube": "b8f18dbbb1fb4ac275725fbe1968dc90",
    "group": "dae30b6e68e251bca1fbf823fcee4e69",
    "schedule": "0bb877264ffb2f534346b0e4ec3eeb66",
    "session": "a8a4993ea9869ce1e0c8d850f6bcc521",
    "consumer": "e7b5f7feeda436edfd24780ee5b6e142",
    "ending": "ec2901094b2dadd2c47f80daeae601c8",
    "failure": "5b1defc210483a3c7b6af24ca3368a60",
    "meta": "fc85a323767442646dcc82c082f550fb",
    "put_answer": "1757fcc73b42edff9bbefcd47713f50c",
    "settle_answer": "a32c7bd87f9246e64492bf80db3d8afe",
    "count_answer": "bbf009d6e87214eb16258145b1f550a0",
    "cancel_answer": "33fa2f0c532e4b1b0d33d66dafcd6595",
    "batch_answer": "261675398131f1653c9d67248240b37b",
}
"""Digests of ``DRAWN`` drawn records of each kind."""


@pytest.mark.parametrize("kind", CODECS)
def test_the_encoding_of_a_record_does_not_change(kind):
    write, _ = CODECS[kind]
    draws = Draws(1)
    records = [write(getattr(drawn_records, kind)(draws)) for _ in range(DRAWN)]
    content = b"".join(len(record).to_bytes(4, "big") + record for record in records)
    assert sha256(content).hexdigest()[:32] == GOLDEN[kind]


@pytest.mark.parametrize("kind", CODECS)
def test_a_record_is_decoded_as_it_was_encoded(kind):
    write, read = CODECS[kind]
    draws = Draws(2)
    for _ in range(DRAWN):
        drawn = getattr(drawn_records, kind)(draws)
        record = write(drawn)
        decoded, end = read(record)
        assert shown(decoded) == shown(drawn)
        assert write(decoded) == record
        assert end == len(record)
