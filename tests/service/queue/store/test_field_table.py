"""A field table defines a layout for encoding and decoding."""

from enum import IntEnum
from struct import error
from types import SimpleNamespace

import pytest

from taskraft_service.queue.store import table_source
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import (
    Blob,
    Blobs,
    Constant,
    Flags,
    Items,
    Nested,
    Number,
    Numbers,
    Optional,
    Present,
    Rows,
    Size,
    Text,
    Texts,
)


class Colour(IntEnum):
    RED = 1
    BLUE = 2


PAIR = FieldTable(dict, Number("one", "B"), Text("two"))

LAYOUTS = [
    ("number", [Number("n", "H")], {"n": 258}, "0102"),
    ("signed number", [Number("n", "q")], {"n": -2}, "fffffffffffffffe"),
    ("bool", [Number("n", "?")], {"n": True}, "01"),
    ("enumeration", [Number("n", "B", Colour)], {"n": Colour.BLUE}, "02"),
    ("converted number", [Number("n", "B", bool)], {"n": True}, "01"),
    ("number that is absent", [Number("n", "b", absent=-1)], {"n": None}, "ff"),
    ("number that may be absent", [Number("n", "b", Colour, absent=-1)], {"n": Colour.RED}, "01"),
    ("neighbours", [Number("n", "B"), Constant("H", 7), Number("m", "B")],
     {"n": 1, "m": 2}, "01 0007 02"),
    ("text", [Text("t")], {"t": "ö"}, "00000002c3b6"),
    ("text to the end", [Number("n", "B"), Text("t", to_end=True)], {"n": 1, "t": "ö"}, "01c3b6"),
    ("blob", [Blob("b")], {"b": b"\xff"}, "00000001ff"),
    ("blob to the end", [Number("n", "B"), Blob("b", to_end=True)], {"n": 1, "b": b"\xff"}, "01ff"),
    ("sizes before texts", [Size("B", "t"), Size("H", "b"), Text("t"), Blob("b")],
     {"t": "ö", "b": b"\xff"}, "020001c3b6ff"),
    ("texts", [Texts("t")], {"t": ("a", "")}, "00000002 0000000161 00000000"),
    ("no texts", [Texts("t")], {"t": ()}, "00000000"),
    ("blobs", [Blobs("b")], {"b": (b"a", b"bc")}, "00000002 0000000161 000000026263"),
    ("numbers", [Numbers("n", "H")], {"n": (1, 2)}, "00000002 00010002"),
    ("rows", [Rows("r", "BH")], {"r": ((1, 2), (3, 4))}, "00000002 010002 030004"),
    ("one size of two lists", [Size("B", "n", "t"), Numbers("n", "B"), Texts("t")],
     {"n": (1, 2), "t": ("a", "")}, "02 0102 0000000161 00000000"),
    ("items", [Items("i", PAIR)], {"i": ({"one": 1, "two": "a"}, {"one": 2, "two": ""})},
     "00000002 010000000161 0200000000"),
    ("nested", [Nested("p", PAIR), Number("n", "B")], {"p": {"one": 1, "two": "a"}, "n": 9},
     "01000000016109"),
    ("flags", [Flags("B", "x", "y", "z")], {"x": False, "y": True, "z": True}, "06"),
    ("optional fields", [Flags("B", Present("n"), Present("p")), Optional(Number("n", "B")),
                         Optional(Nested("p", PAIR))],
     {"n": 5, "p": {"one": 1, "two": ""}}, "03 05 0100000000"),
    ("absent fields", [Flags("B", Present("n"), Present("p")), Optional(Number("n", "B")),
                       Optional(Nested("p", PAIR))], {"n": 0, "p": None}, "00"),
    ("absent blob", [Flags("B", Present("b")), Blob("b")], {"b": None}, "0000000000"),
    ("empty blob", [Flags("B", Present("b")), Blob("b")], {"b": b""}, "0100000000"),
    ("absent text", [Flags("B", Present("t")), Text("t")], {"t": None}, "0000000000"),
]  # fmt: skip


def as_object(content):
    """Convert dictionaries to objects with attributes, also inside tuples."""
    if isinstance(content, dict):
        return SimpleNamespace(**{name: as_object(inner) for name, inner in content.items()})
    return tuple(map(as_object, content)) if isinstance(content, tuple) else content


@pytest.mark.parametrize(
    ("fields", "content", "record"),
    [case[1:] for case in LAYOUTS],
    ids=[case[0] for case in LAYOUTS],
)
def test_each_kind_of_field_has_its_layout(fields, content, record):
    table = FieldTable(dict, *fields)
    record = bytes.fromhex(record)
    assert table.write(as_object(content)) == record
    before = b"before"
    decoded, end = table.read(before + record, len(before))
    assert decoded == content
    assert [type(one) for one in decoded.values()] == [type(one) for one in content.values()]
    assert end == len(before + record)


def test_a_record_ends_where_its_last_field_ends():
    table = FieldTable(dict, Text("t"), Numbers("n", "B"))
    assert table.read(bytes.fromhex("00000001610000000105") + b"after") == (
        {"t": "a", "n": (5,)},
        10,
    )


PARTS = FieldTable(
    dict,
    Flags("B", Present("owner"), "owner.is_known"),
    Number("owner.age", "B"),
    Text("owner.name"),
    Number("place.tube", "B", of="place[0]"),
    Number("place.id", "B", of="place[1]"),
    Number("total", "B", of=lambda source: sum(source.place)),
    parts={"owner": SimpleNamespace, "place": lambda tube, id: (tube, id)},
)


def test_the_fields_of_a_part_are_decoded_to_the_part():
    owner = SimpleNamespace(is_known=True, age=7, name="ann")
    record = PARTS.write(SimpleNamespace(owner=owner, place=(2, 3)))
    assert record.hex() == "030700000003616e6e020305"
    assert PARTS.read(record) == ({"owner": owner, "place": (2, 3), "total": 5}, len(record))


def test_an_absent_part_is_encoded_as_empty_and_decoded_as_none():
    record = PARTS.write(SimpleNamespace(owner=None, place=(0, 0)))
    assert record == bytes(9)
    assert PARTS.read(record)[0]["owner"] is None


def test_a_number_out_of_range_is_refused():
    with pytest.raises(error):
        FieldTable(dict, Number("n", "B")).write(SimpleNamespace(n=256))


def test_an_unknown_number_of_an_enumeration_is_refused():
    with pytest.raises(KeyError):
        FieldTable(dict, Number("n", "B", Colour)).read(b"\x09")


@pytest.mark.parametrize(
    "fields",
    [
        [Number("n", "B"), Text("n")],
        [Size("B", "t"), Text("other")],
        [Flags("B", Present("t")), Text("other")],
        [Text("part.name")],
        [Optional(Number("n", "B"))],
    ],
    ids=["two of one name", "size of nothing", "flag of nothing", "unknown part", "no flag"],
)
def test_a_contradictory_table_is_refused(fields):
    with pytest.raises((AssertionError, KeyError)):
        FieldTable(dict, *fields)


def test_the_docstring_of_the_module_shows_the_generated_code_without_branches():
    table = FieldTable(dict, Number("at_ms", "q"), Text("tube"))
    example = table_source.__doc__.partition("a number\nand a text:\n")[2]
    assert table.source.split() == example.split()
