"""A field table encodes the fields in their order and converts them when they are read."""

from types import SimpleNamespace

from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.entities.tube_options import OnAck

TABLE = FieldTable((("count", "H", int), ("inner.on", "?", bool), ("on_ack", "B", OnAck)), "I")


def test_fields_are_written_in_order_and_read_by_name():
    source = SimpleNamespace(count=3, inner=SimpleNamespace(on=True), on_ack=OnAck.KEEP)
    record = TABLE.write(source, 7)
    assert record.hex() == "0003010200000007"
    fields, more = TABLE.read(b"xx" + record, 2)
    assert fields == {"count": 3, "inner.on": True, "on_ack": OnAck.KEEP}
    assert list(more) == [7]
    assert TABLE.size == len(record)
