"""A snapshot file is read back as written, and any damage to it is found."""

import hashlib
import io

import pytest

from taskraft_service.backup.snapshot_file import (
    MAGIC,
    RecordDigests,
    SnapshotFileInvalid,
    SnapshotFileReader,
    SnapshotFileWriter,
    SnapshotInfo,
    read_header,
)

RECORDS = RecordDigests(1, (7, 0, 4_294_967_295))
CONTENT = bytes(range(256)) * 3
INFO = SnapshotInfo("id", "shop", "n1", 17, 3, 1_700_000_000_000, "0.1.0", len(CONTENT))


def whole():
    file = io.BytesIO()
    writer = SnapshotFileWriter(file)
    writer.begin(INFO)
    for start in range(0, len(CONTENT), 100):
        writer.add(CONTENT[start : start + 100])
    writer.finish(RECORDS)
    return file.getvalue()


def first_format():
    """Return the same file in format 1, which has no digests of records."""
    head = INFO.encode().replace(MAGIC, b"taskraft snapshot file 1\n")
    raw = head + CONTENT
    return raw + hashlib.sha256(raw).digest()


def content_of(raw):
    reader = SnapshotFileReader(io.BytesIO(raw))
    return reader.info, b"".join(reader.content()), reader.records


def test_a_file_is_read_as_it_was_written():
    assert content_of(whole()) == (INFO, CONTENT, RECORDS)


def test_a_file_of_format_1_is_read_without_digests_of_records():
    assert content_of(first_format()) == (INFO, CONTENT, RecordDigests())
    with pytest.raises(SnapshotFileInvalid, match="an older format"):
        SnapshotFileWriter(io.BytesIO(first_format()[:-40])).resume()


def test_each_piece_is_reported_with_the_size_of_the_content():
    reports = []
    reader = SnapshotFileReader(io.BytesIO(whole()), lambda *sizes: reports.append(sizes))
    assert sum(map(len, reader.content())) == len(CONTENT)
    assert sum(piece for piece, _ in reports) == len(CONTENT)
    assert {total for _, total in reports} == {len(CONTENT)}


def test_every_truncation_is_found():
    raw = whole()
    for size in range(len(raw)):
        with pytest.raises(SnapshotFileInvalid):
            content_of(raw[:size])


def test_every_flipped_bit_is_found():
    raw = whole()
    for place in range(len(raw)):
        for bit in range(8):
            altered = bytearray(raw)
            altered[place] ^= 1 << bit
            with pytest.raises(SnapshotFileInvalid):
                content_of(bytes(altered))


def test_data_after_the_end_is_found():
    with pytest.raises(SnapshotFileInvalid, match="after its end"):
        content_of(whole() + b"x")


@pytest.mark.parametrize("number", [3, 10, 99_999])
def test_the_format_of_a_newer_version_is_named(number):
    newer = whole().replace(MAGIC, b"taskraft snapshot file %d\n" % number)
    with pytest.raises(SnapshotFileInvalid) as refused:
        read_header(io.BytesIO(newer))
    assert str(refused.value) == (
        f"the snapshot file has format {number}, and this release reads format 1, 2; "
        f"use the release that wrote it, see docs/upgrading.md"
    )


def test_another_file_is_no_snapshot():
    with pytest.raises(SnapshotFileInvalid, match="not a taskraft snapshot"):
        read_header(io.BytesIO(b"PK\x03\x04"))


@pytest.mark.parametrize("kept", [0, 1, 500, len(CONTENT)])
def test_an_incomplete_file_is_continued(kept):
    start = len(INFO.encode())
    file = io.BytesIO(whole()[: start + kept])
    writer = SnapshotFileWriter(file)
    assert writer.resume() == INFO
    assert writer.written == kept
    writer.add(CONTENT[kept:])
    writer.finish(RECORDS)
    assert content_of(file.getvalue()) == (INFO, CONTENT, RECORDS)


def test_a_file_with_a_part_of_its_digest_is_not_continued():
    with pytest.raises(SnapshotFileInvalid, match="longer"):
        SnapshotFileWriter(io.BytesIO(whole()[:-1])).resume()
