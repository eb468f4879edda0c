"""Payloads as a tree, as text and in hexadecimal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_console.views.payload_view import (
    SHOWN_BYTES_MAX,
    TREE_NODES_MAX,
    PayloadView,
)


def test_json_is_a_tree_with_exact_numbers():
    view = PayloadView.of(b'{"id": 1970670598291982290, "price": 0.10, "tags": ["a", null]}')
    lines = [(line.depth, line.key, line.text) for line in view.tree]
    assert lines == [
        (0, "", "3"),
        (1, "id", "1970670598291982290"),
        (1, "price", "0.10"),
        (1, "tags", "2"),
        (2, "0", "a"),
        (2, "1", "null"),
    ]
    assert view.forms == ("tree", "text", "hex")


def test_text_that_is_not_json_is_text():
    view = PayloadView.of("grüße".encode())
    assert (view.form, view.text, view.forms) == ("text", "grüße", ("text", "hex"))


def test_bytes_are_hexadecimal_rows():
    view = PayloadView.of(bytes(range(0x1F, 0x31)) + b"\xff")
    assert view.forms == ("hex",)
    assert view.text.splitlines()[0].startswith("000000  1f 20 21")
    assert view.text.splitlines()[1].startswith("000010  2f 30 ff")


@pytest.mark.parametrize("depth", [50, 100_000])
def test_deep_json_does_not_fail(depth):
    assert PayloadView.of(b"[" * depth + b"]" * depth).forms


def test_large_payloads_are_cut_with_a_note():
    text = PayloadView.of("ä".encode() * SHOWN_BYTES_MAX)
    assert text.form == "text"
    assert text.note == f"the first {SHOWN_BYTES_MAX} of {2 * SHOWN_BYTES_MAX} bytes"
    many = PayloadView.of(b"[" + b"1," * TREE_NODES_MAX + b"1]")
    assert (len(many.tree), many.note) == (TREE_NODES_MAX, f"the first {TREE_NODES_MAX} values")


@given(st.binary(max_size=200), st.sampled_from(["", "tree", "text", "hex", "other"]))
def test_any_bytes_have_a_view(payload, wanted):
    view = PayloadView.of(payload, wanted)
    assert view.size == len(payload)
    assert view.form in view.forms
