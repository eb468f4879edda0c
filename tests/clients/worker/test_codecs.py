"""Codecs encode values by their annotations, and refuse values of other types."""

import datetime as dt
import enum
import zlib
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypedDict
from uuid import UUID

import pydantic
import pytest

from taskraft.v1 import task_pb2
from taskraft.worker import (
    App,
    BytesCodec,
    Codec,
    DecodeError,
    EncodeError,
    InvalidTask,
    JsonCodec,
    MsgspecCodec,
    PydanticCodec,
    WrappedCodec,
)
from taskraft.worker.codecs import codec_for
from tests.clients.worker import handlers


class Color(enum.Enum):
    RED = "red"


@dataclass
class Item:
    name: str
    price: Decimal = Decimal(0)
    tags: set[str] = field(default_factory=set)


class Row(TypedDict, total=False):
    id: int


class Order(pydantic.BaseModel):
    id: int
    email: str = ""


def bill(order: Order, copies: int = 1) -> Order: ...


def store(data: bytes) -> bytes: ...


CODEC = JsonCodec()


@pytest.mark.parametrize(
    ("value", "kind", "encoded"),
    [
        (None, None, b"null"),
        (1.5, float, b"1.5"),
        (2, float, b"2"),
        ("é", str, '"é"'.encode()),
        (b"\xff", bytes, b'"/w=="'),
        ([1, 2], list[int], b"[1,2]"),
        ((1, "a"), tuple[int, str], b'[1,"a"]'),
        ((1, 2), tuple[int, ...], b"[1,2]"),
        (frozenset({1}), frozenset[int], b"[1]"),
        ({"a": 1}, dict[str, int], b'{"a":1}'),
        (None, int | None, b"null"),
        ("b", Literal["a", "b"], b'"b"'),
        (Color.RED, Color, b'"red"'),
        (Item("x", Decimal("1.10"), {"t"}), Item, b'{"name":"x","price":"1.10","tags":["t"]}'),
        ({"id": 1}, Row, b'{"id":1}'),
        (dt.date(2026, 1, 2), dt.date, b'"2026-01-02"'),
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.datetime, b'"2026-01-02T00:00:00+00:00"'),
        (dt.timedelta(seconds=1.5), dt.timedelta, b'"1.5"'),
        (UUID(int=1), UUID, b'"00000000-0000-0000-0000-000000000001"'),
        ({"any": [1]}, Any, b'{"any":[1]}'),
    ],
)
def test_a_value_comes_back_as_it_was(value, kind, encoded):
    assert CODEC.encode(value, kind) == encoded
    assert CODEC.decode(encoded, kind) == value


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        ("1", int, "must be int"),
        (True, int, "must be int"),
        (True, float, "must be float"),
        ("ab", list[str], "must be list"),
        ([1, "b"], list[int], "must be int"),
        ((1,), tuple[int, str], "must have 2 items"),
        ({1: 1}, dict[str, int], "must be str"),
        ("c", Literal["a", "b"], "must be one of"),
        (1, str | None, "must be str"),
        (Item("x", price=1), Item, "price: must be Decimal"),
        (float("nan"), float, "Out of range"),
    ],
)
def test_a_value_of_another_type_is_not_encoded(value, kind, told):
    with pytest.raises(EncodeError, match=told):
        CODEC.encode(value, kind)


@pytest.mark.parametrize(
    ("encoded", "kind", "told"),
    [
        (b"{", int, "Expecting"),
        (b'"1"', int, "must be int"),
        (b"[]", Item, "must be an object"),
        (b"{}", Item, "lacks name"),
        (b'{"name":"x","price":"y"}', Item, "price: must be a decimal number"),
        (b'"blue"', Color, "blue"),
        (b'"2026-13-01"', dt.date, "month"),
        (b"[" * 100_000, Any, "recursion|Stack overflow"),  # before and since Python 3.14
    ],
)
def test_bytes_of_another_type_are_not_decoded(encoded, kind, told):
    with pytest.raises(DecodeError, match=told):
        CODEC.decode(encoded, kind)


def test_unknown_members_are_ignored_and_absent_ones_get_their_defaults():
    assert CODEC.decode(b'{"name":"x","new":1}', Item) == Item("x")


def test_a_pydantic_model_selects_its_codec():
    task = App("test").task(bill)
    assert isinstance(task.payloads.codec, PydanticCodec)
    payload = task.plan(Order(id=1)).spec.payload
    assert payload == b'{"order":{"id":1,"email":""}}'
    assert task.payloads.decode(payload, "application/json") == {"order": Order(id=1)}
    with pytest.raises(DecodeError):
        task.payloads.decode(b'{"order":{"id":"x"}}', "application/json")
    with pytest.raises(EncodeError):
        task.plan("x")


def test_bytes_and_wrapped_bytes_come_back():
    raw = App("test", codec=BytesCodec()).task(payload="single")(store)
    assert raw.plan(b"\xff").spec.payload == b"\xff"
    assert raw.payloads.decode(b"\xff", "application/octet-stream") == {"data": b"\xff"}
    with pytest.raises(InvalidTask, match="BytesCodec supports bytes"):
        App("test", codec=BytesCodec()).task(bill)
    packed = WrappedCodec(BytesCodec(), zlib.compress, zlib.decompress, content_type="x/zlib")
    assert packed.decode(packed.encode(b"a" * 999, bytes), bytes) == b"a" * 999
    with pytest.raises(DecodeError, match="cannot unwrap"):
        packed.decode(b"?", bytes)
    with pytest.raises(ValueError, match="new one"):
        WrappedCodec(JsonCodec(), bytes, bytes, content_type="application/json")


@pytest.mark.parametrize("codec", [CODEC, BytesCodec(), PydanticCodec()])
def test_each_codec_has_the_methods_of_a_codec(codec):
    assert isinstance(codec, Codec)


def test_a_payload_of_another_media_type_is_refused():
    task = App("test").task(bill)
    with pytest.raises(DecodeError, match="the content type is text/plain"):
        task.payloads.decode(b"{}", "text/plain")


def test_a_payload_is_decoded_by_its_media_type():
    small = WrappedCodec(JsonCodec(), zlib.compress, zlib.decompress, content_type="x/zlib")
    app = App("test")
    plain = app.task(also_reads=[small])(handlers.add)
    compressed = App("test", codec=small).task(handlers.add)
    spec = compressed.plan(7).spec
    assert plain.payloads.decode(spec.payload, spec.content_type) == {"a": 7}
    assert plain.plan(7).spec.content_type == "application/json"
    with pytest.raises(DecodeError, match="reads x/zlib, application/json"):
        plain.payloads.decode(b"", "text/csv")


@pytest.mark.parametrize(
    ("form", "content_type"),
    [("json", "application/json"), ("msgpack", "application/msgpack")],
)
def test_msgspec_validates_payloads(form, content_type):
    pytest.importorskip("msgspec", reason="msgspec is not installed")
    codec = MsgspecCodec(form)
    task = App("test", codec=codec).task(handlers.add)
    spec = task.plan(7).spec
    assert spec.content_type == content_type
    assert task.payloads.decode(spec.payload, spec.content_type) == {"a": 7}
    with pytest.raises(EncodeError, match="Expected `int`, got `str`"):
        task.plan("7")
    with pytest.raises(DecodeError, match=r"Expected `int`|malformed|MessagePack"):
        task.payloads.decode(codec.encode({"a": "x"}, dict[str, str]), content_type)


def test_a_struct_selects_msgspec():
    msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")
    assert isinstance(codec_for([msgspec.defstruct("Row", [("id", int)])]), MsgspecCodec)


async def total(prices: list[int], currency: str = "EUR") -> str:
    return f"{sum(prices)} {currency}"


def from_1(price: int) -> dict[str, object]:
    return {"prices": [price] if price else price}


def test_an_older_version_is_upgraded_and_checked():
    task = App("test").task(name="total", version=3)(total)
    task.upgrade(1)(from_1)
    assert list(task.upgrades) == ["total"]
    old = task_pb2.TaskSpec(type="total", payload=b'{"price":7}')
    assert task.decode(old) == {"prices": [7]}
    assert task.decode(task.plan([1]).spec) == {"prices": [1]}
    with pytest.raises(DecodeError, match="the upgrade from total failed"):
        task.decode(task_pb2.TaskSpec(type="total", payload=b'{"price":0}'))
    for version in (0, 3):
        with pytest.raises(InvalidTask, match="from a version from 1 to 2"):
            task.upgrade(version)(from_1)
