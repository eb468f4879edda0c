"""The bytes of each kind of record do not change: stores and snapshots of older versions have them.

A change of a layout is a new ``FORMAT`` of the store, and new digests here.
"""

from hashlib import sha256

import pytest

from taskraft_service.queue.codecs import extras_codec, settings_codec
from taskraft_service.queue.entities.session import read_session
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.feed.feed_consumers import read_consumer
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.state import dependents, group_registry, schedule_registry, tube_codec
from tests.service.queue.codecs import drawn_records
from tests.service.queue.codecs.drawn_records import Draws
from tests.service.queue.kept_answers import decode, encode
from tests.service.queue.memory_store import MemoryStore

DRAWN = 400


def whole(read):
    return lambda record: (read(record), len(record))


def read_tube(record):
    return tube_codec.read_tube(record, MemoryStore(), Limits())


def from_start(read):
    return lambda record: read(record, 0)


def shown(drawn):
    """Return a drawn value as text, with lists and tuples alike."""
    if isinstance(drawn, QueueTube):
        return drawn.view()
    if type(drawn).__repr__ is object.__repr__:  # other entities do not define one
        drawn = [getattr(drawn, name) for name in type(drawn).__slots__]
    return repr(drawn).translate(dict.fromkeys(map(ord, "[](),")))


CODECS = {
    "retry": (extras_codec.write_retry, lambda record: (extras_codec.read_retry(record, 0), 27)),
    "extras": (extras_codec.write_extras, from_start(extras_codec.read_extras)),
    "settings": (settings_codec.write_settings, from_start(settings_codec.read_settings)),
    "options": (tube_codec.write_options, from_start(tube_codec.read_options)),
    "tube": (tube_codec.write_tube, whole(read_tube)),
    "group": (group_registry.write_group, whole(group_registry.read_group)),
    "schedule": (lambda drawn: drawn.record(), whole(schedule_registry.read_schedule)),
    "session": (lambda drawn: drawn.record(), whole(read_session)),
    "consumer": (lambda drawn: drawn.record(), whole(read_consumer)),
    "ending": (dependents._write, whole(dependents._read)),
    "put_answer": (encode, whole(decode)),
    "settle_answer": (encode, whole(decode)),
    "count_answer": (encode, whole(decode)),
    "cancel_answer": (encode, whole(decode)),
    "batch_answer": (encode, whole(decode)),
}
"""Encoder and decoder of each kind of record in ``drawn_records``."""

GOLDEN = {
    "retry": "c70371a6157760e46200e7e988ef2786",
    "extras": "76a2c706559884508025d11612fb5f8d",
    "settings": "1e7ba0b4e62381d635acacf2d222d34b",
    "options": "71f6afc22844d7f68b10098ba0c561ed",
    "tube": "9f9964272689736f9e266416569b4a5d",
    "group": "dae30b6e68e251bca1fbf823fcee4e69",
    "schedule": "0bb877264ffb2f534346b0e4ec3eeb66",
    "session": "a8a4993ea9869ce1e0c8d850f6bcc521",
    "consumer": "e7b5f7feeda436edfd24780ee5b6e142",
    "ending": "ec2901094b2dadd2c47f80daeae601c8",
    "put_answer": "1757fcc73b42edff9bbefcd47713f50c",
    "settle_answer": "a32c7bd87f9246e64492bf80db3d8afe",
    "count_answer": "bbf009d6e87214eb16258145b1f550a0",
    "cancel_answer": "33fa2f0c532e4b1b0d33d66dafcd6595",
    "batch_answer": "261675398131f1653c9d67248240b37b",
}
"""Digests of ``DRAWN`` drawn records of each kind."""


@pytest.mark.parametrize("kind", CODECS)
def test_the_bytes_of_a_record_do_not_change(kind):
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
