"""A later option has a place in the records of its format only."""

from dataclasses import replace

from taskraft_service.queue.entities.tube_options import OPTION_ROWS, Durability
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.state import tube_codec
from taskraft_service.versions import ClusterVersion, StateVersion
from tests.service.later_release import become_later_release
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.store import drawn_records
from tests.service.queue.store.drawn_records import Draws

OLD = StateVersion.V18
DRAWN = 100


def test_a_record_of_the_earlier_format_has_no_later_option_and_is_converted(monkeypatch):
    new = add_later_option(monkeypatch, "durability")
    draws = Draws(3)
    for _ in range(DRAWN):
        tube = drawn_records.tube(draws)
        record = tube_codec.write_tube(tube, OLD)
        converted = tube_codec.convert_tube(record, OLD, new)
        assert len(converted) == len(record) + 1
        expected = replace(tube.view().options, durability=Durability.REPLICATED)
        for version, bytes_ in ((OLD, record), (new, converted)):
            found = tube_codec.read_tube(bytes_, MemoryStore(), Limits(), version)
            assert found.view() == replace(tube.view(), options=expected)
            assert tube_codec.write_tube(found, version) == bytes_


def add_later_option(monkeypatch, name):
    """Let an option belong to the next cluster version; return the format that stores it."""
    become_later_release(monkeypatch)
    second, new = ClusterVersion(2), StateVersion(19)
    rows = [replace(row, since=second) if row.name == name else row for row in OPTION_ROWS]
    monkeypatch.setattr(tube_codec, "OPTION_ROWS", rows)
    for version in (OLD, new):
        options = tube_codec.options_layout(version)
        monkeypatch.setitem(tube_codec.OPTIONS, version, options)
        monkeypatch.setitem(tube_codec.TUBES, version, tube_codec.tube_layout(options))
    return new
