"""Check that the list of features is complete and that all names in it exist."""

import re

import pytest

from taskraft.v1 import (
    cluster_service_pb2,
    feed_service_pb2,
    group_service_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_pb2,
    task_service_pb2,
    tube_service_pb2,
)
from tests.docs.documents import ROOT

PAGE = ROOT / "docs" / "features.md"
CONTRACT = (
    cluster_service_pb2,
    feed_service_pb2,
    group_service_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_pb2,
    task_service_pb2,
    tube_service_pb2,
)
ROWS = {
    "Features of older queues": set(range(1, 87)),
    "Features that users ask for": set(range(1, 36)),
}
OWN_WORDS = {"make bench", "make bench-core"}


def rows():
    """Yield the table, the number and the cells of each row."""
    table = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            table = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0].isdigit():
            yield table, int(cells[0]), cells[1:]


def names_of(message):
    """Yield the names of a message, its fields, its enum values and its nested messages."""
    yield message.name
    yield from (field.name for field in message.fields)
    for choice in message.enum_types:
        yield from (number.name for number in choice.values)
    for part in message.nested_types:
        yield from names_of(part)


def contract():
    """Return all names of the contract."""
    known = set()
    for module in CONTRACT:
        for service in module.DESCRIPTOR.services_by_name.values():
            known.update(method.name for method in service.methods)
        for message in module.DESCRIPTOR.message_types_by_name.values():
            known.update(names_of(message))
    return known


@pytest.mark.parametrize("table", ROWS)
def test_no_row_is_missing(table):
    assert {number for name, number, _ in rows() if name == table} == ROWS[table]


def test_every_named_call_and_option_is_in_the_contract():
    known = contract()
    unknown = [
        (number, word)
        for _, number, (_, calls, _) in rows()
        for quoted in re.findall(r"`([^`]+)`", calls)
        if quoted not in OWN_WORDS
        for word in re.findall(r"\w+", quoted)
        if word not in known
    ]
    assert unknown == []


def test_every_named_proof_exists():
    missing = [
        (number, path)
        for _, number, (_, _, proof) in rows()
        for path in re.findall(r"\(\.\./([^)]+)\)", proof)
        if not (ROOT / path).is_file()
    ]
    assert missing == []
