"""Write and read snapshot files: a header, the content, and a digest of both.

A file begins with two lines, which an operator can read: the name of the format, and the header as
JSON. The content follows, exactly as ``SaveSnapshot`` streams it, then a line with the digests of
the records as JSON, and then the SHA-256 of all bytes before. Format 1 has no digests. A file may
be encrypted as a whole with age (see ``encryption``).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import BinaryIO, Final, NoReturn

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft_service.versions import SnapshotFileVersion, known_formats

_NAME: Final = b"taskraft snapshot file "
MAGIC: Final = _NAME + b"%d\n" % SnapshotFileVersion.V2
FORMAT_DIGITS_MAX: Final = 5
HEADER_BYTES_MAX: Final = 4096
DIGESTS_BYTES_MAX: Final = 4096
DIGEST_BYTES: Final = 32
PIECE_BYTES: Final = 1 << 20


class SnapshotFileInvalid(Exception):
    """The file is no complete snapshot file of this version; the text says why, in one line."""


@dataclass(slots=True, frozen=True)
class SnapshotInfo:
    """The header of a snapshot file; fields as in taskraft.v1.SnapshotHeader."""

    snapshot_id: str
    cluster_id: str
    node: str
    index: int
    term: int
    taken_at_ms: int
    version: str
    content_bytes: int

    @classmethod
    def of(cls, header: pb.SnapshotHeader) -> SnapshotInfo:
        """Return the header of a stream."""
        return cls(**{field.name: getattr(header, field.name) for field in fields(cls)})

    def encode(self) -> bytes:
        """Return the first two lines of the file."""
        return MAGIC + json.dumps(asdict(self)).encode() + b"\n"


@dataclass(slots=True, frozen=True)
class RecordDigests:
    """Digests of the records, as the node has computed them from its state."""

    version: int = 0
    """Version of the digests; 0: the node or the file has none."""
    parts: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """Return the line of the file."""
        return json.dumps({"version": self.version, "parts": self.parts}).encode() + b"\n"


class SnapshotFileWriter:
    """Writes a snapshot file.

    Args:
        file: a file that can be written; for ``resume``, also read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.written = 0
        """Number of bytes of the content so far."""

    def begin(self, info: SnapshotInfo) -> None:
        """Write the header of the snapshot file."""
        self._write(info.encode())

    def resume(self) -> SnapshotInfo:
        """Continue an incomplete file at its end; return its header.

        Raises:
            SnapshotFileInvalid: the file has no complete header.
        """
        version, info = read_header(self._file)
        if version is not SnapshotFileVersion.V2:
            raise SnapshotFileInvalid("the incomplete file has an older format")
        self._digest.update(info.encode())
        while piece := self._file.read(PIECE_BYTES):
            self._digest.update(piece)
            self.written += len(piece)
        if self.written > info.content_bytes:
            # The process was killed while it wrote the digest.
            raise SnapshotFileInvalid("the file is longer than its content")
        return info

    def add(self, piece: bytes) -> None:
        """Append a piece of the content."""
        self._write(piece)
        self.written += len(piece)

    def finish(self, records: RecordDigests) -> None:
        """Write the digests of the records and of the file after the last piece."""
        self._write(records.encode())
        self._file.write(self._digest.digest())

    def _write(self, content: bytes) -> None:
        self._file.write(content)
        self._digest.update(content)


Report = Callable[[int, int], object]
"""Called with the size of a piece and the size of the whole content, in bytes."""


def report_nothing(_piece_bytes: int, _content_bytes: int) -> None:
    """Report no progress."""


class SnapshotFileReader:
    """Reads a snapshot file and checks its digest.

    Args:
        file: the file, decrypted.
        report: called after each piece of the content.

    Raises:
        SnapshotFileInvalid: the file has no valid header.
    """

    def __init__(self, file: BinaryIO, report: Report = report_nothing) -> None:
        self._file = file
        self._report = report
        self.version, self.info = read_header(file)
        self._digest = hashlib.sha256(_first_line(self.version) + self.info.encode()[len(MAGIC) :])
        self.records = RecordDigests()
        """Digests of the records; read after the content."""

    def content(self) -> Iterator[bytes]:
        """Yield the content in pieces, and check the digest after the last piece.

        Raises:
            SnapshotFileInvalid: the file is truncated, altered, or longer than its content. Content
                that was yielded before must not be used.
        """
        left = self.info.content_bytes
        while left:
            piece = self._file.read(min(PIECE_BYTES, left))
            if not piece:
                raise SnapshotFileInvalid(f"the file is truncated: {left} bytes are missing")
            self._digest.update(piece)
            left -= len(piece)
            yield piece
            self._report(len(piece), self.info.content_bytes)
        line = b""
        if self.version is not SnapshotFileVersion.V1:
            line = self._file.readline(DIGESTS_BYTES_MAX)
            self._digest.update(line)
        if self._file.read(DIGEST_BYTES) != self._digest.digest():
            raise SnapshotFileInvalid("the digest differs: the file was altered or truncated")
        if self._file.read(1):
            raise SnapshotFileInvalid("the file has data after its end")
        if line:
            values = json.loads(line)  # right, because the digest of the file is right
            self.records = RecordDigests(values["version"], tuple(values["parts"]))


def read_header(file: BinaryIO) -> tuple[SnapshotFileVersion, SnapshotInfo]:
    """Read the format and the header at the start of a file.

    Raises:
        SnapshotFileInvalid: the file has no valid header.
    """
    magic = file.readline(len(MAGIC) + FORMAT_DIGITS_MAX)
    version = next((each for each in SnapshotFileVersion if magic == _first_line(each)), None)
    if version is None:
        _refuse_format(magic)
    line = file.readline(HEADER_BYTES_MAX)
    try:
        values = json.loads(line)
        info = SnapshotInfo(**values)
    except (ValueError, TypeError) as error:
        raise SnapshotFileInvalid("the header is damaged") from error
    types = {field.name: field.type for field in fields(SnapshotInfo)}
    is_valid = all(type(values[name]).__name__ == of for name, of in types.items())
    if not is_valid or info.encode() != MAGIC + line or info.content_bytes < 0:
        raise SnapshotFileInvalid("the header is damaged")
    return version, info


def _first_line(version: SnapshotFileVersion) -> bytes:
    return _NAME + b"%d\n" % version


def _refuse_format(line: bytes) -> NoReturn:
    """Refuse a file whose first line does not name a known format."""
    found = re.fullmatch(rb"([1-9][0-9]*)\n", line.removeprefix(_NAME))
    if not line.startswith(_NAME) or found is None:
        raise SnapshotFileInvalid("the file is not a taskraft snapshot")
    raise SnapshotFileInvalid(
        f"the snapshot file has format {int(found[1])}, and this release reads "
        f"{known_formats(SnapshotFileVersion)}; use the release that wrote it, "
        f"see docs/upgrading.md"
    )


def make_durable(file: BinaryIO) -> None:
    """Flush a file, and sync it to disk; a pipe is only flushed."""
    file.flush()
    if file.seekable():
        os.fsync(file.fileno())
