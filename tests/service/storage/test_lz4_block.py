"""Blocks of LZ4 are decompressed in steps, and other bytes are refused."""

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.storage.lz4_block import BlockMalformed, decompress


def whole(packed):
    steps = decompress(packed, 0)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(0, 11), max_size=60))
def test_the_content_is_that_of_another_implementation(words, order):
    content = b"".join(words[each % len(words)] for each in order) if words else b""
    packed = pa.compress(content, codec="lz4_raw", asbytes=True)
    assert whole(packed) == content


@given(st.binary(max_size=300))
def test_other_bytes_are_refused_or_decompressed(packed):
    content = None
    with suppress(BlockMalformed):
        content = whole(packed)
    assert content is None or isinstance(content, bytes)


@pytest.mark.parametrize("packed", [b"", b"\x10", b"\x04a\x00\x00", b"\x14a\x02\x00", b"\xf0\xff"])
def test_a_block_that_is_cut_off_or_points_nowhere_is_refused(packed):
    with pytest.raises(BlockMalformed):
        whole(packed)
