"""Write a snapshot of a running cluster to a file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import google_crc32c

from taskraft import Client, errors
from taskraft.v1 import cluster_service_pb2 as pb
from taskraft_replication.storage.filesystem import sync_directory
from taskraft_service.backup import encryption
from taskraft_service.backup.snapshot_file import (
    RecordDigests,
    Report,
    SnapshotFileInvalid,
    SnapshotFileWriter,
    SnapshotInfo,
    make_durable,
)

_MODE: Final = 0o600
"""Only the owner may read a snapshot, because it contains the payloads of all tasks."""


def download(client: Client, part: Path, *, local: bool, report: Report) -> SnapshotInfo:
    """Write a snapshot to ``part``, or continue the incomplete snapshot in ``part``.

    Raises:
        SnapshotFileInvalid: a piece was damaged in transit; a repeated call fetches it again.
        OSError: the file cannot be written.
    """
    if part.exists():
        # If the node no longer keeps the snapshot of an incomplete file, write a new file.
        with suppress(errors.SnapshotNotFound, SnapshotFileInvalid):
            return _complete(client, part, local=local, report=report)
    with _opened(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "wb") as file:
        writer = SnapshotFileWriter(file)
        messages = client.snapshot(local=local)
        info = SnapshotInfo.of(next(messages).header)
        writer.begin(info)
        return _write(_reported(messages, info, report), writer, file, info, part)


def _reported(
    messages: Iterator[pb.SaveSnapshotResponse], info: SnapshotInfo, report: Report
) -> Iterator[pb.SaveSnapshotResponse]:
    """Yield the messages, and report the size of each."""
    for message in messages:
        report(len(message.content), info.content_bytes)
        yield message


def _complete(client: Client, part: Path, *, local: bool, report: Report) -> SnapshotInfo:
    with _opened(part, os.O_RDWR, "r+b") as file:
        writer = SnapshotFileWriter(file)
        info = writer.resume()
        messages = client.snapshot(local=local, snapshot_id=info.snapshot_id, offset=writer.written)
        next(messages)
        report(writer.written, info.content_bytes)
        return _write(_reported(messages, info, report), writer, file, info, part)


def _write(
    messages: Iterator[pb.SaveSnapshotResponse],
    writer: SnapshotFileWriter,
    file: io.BufferedWriter | io.BufferedRandom,
    info: SnapshotInfo,
    part: Path,
) -> SnapshotInfo:
    records = RecordDigests()
    for message in messages:
        if message.HasField("digest"):
            records = _records_of(message)
        else:
            writer.add(_checked(message))
    writer.finish(records)
    make_durable(file)
    sync_directory(part.absolute().parent)
    return info


def download_encrypted(
    client: Client, part: Path, recipients: Sequence[str], *, local: bool, report: Report
) -> SnapshotInfo:
    """Write an encrypted snapshot to ``part``; no plaintext reaches the disk.

    Raises:
        KeyUnusable: a recipient is not a public key, or the library is not installed.
        SnapshotFileInvalid: a piece was damaged in transit.
    """
    encryption.recipients_of(recipients)
    messages = client.snapshot(local=local)
    info = SnapshotInfo.of(next(messages).header)
    messages = _reported(messages, info, report)
    with _opened(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "wb") as file:
        encryption.encrypt(io.BufferedReader(_PlainStream(messages, info)), file, recipients)
        make_durable(file)
    sync_directory(part.absolute().parent)
    return info


def _opened(part: Path, flags: int, mode: str) -> io.BufferedWriter | io.BufferedRandom:
    descriptor = os.open(part, flags | os.O_CLOEXEC, _MODE)
    opened = os.fdopen(descriptor, mode)
    assert isinstance(opened, io.BufferedWriter | io.BufferedRandom)
    return opened


def _checked(message: pb.SaveSnapshotResponse) -> bytes:
    if google_crc32c.value(message.content) != message.content_crc32c:
        raise SnapshotFileInvalid("a piece was damaged on its way from the node; try again")
    return message.content


def _records_of(message: pb.SaveSnapshotResponse) -> RecordDigests:
    return RecordDigests(message.digest.version, tuple(message.digest.parts))


class _PlainStream(io.RawIOBase):
    """The bytes of a snapshot file, produced while they are read."""

    def __init__(self, messages: Iterator[pb.SaveSnapshotResponse], info: SnapshotInfo) -> None:
        super().__init__()
        self._messages = messages
        self._written = io.BytesIO()
        self._writer = SnapshotFileWriter(self._written)
        self._writer.begin(info)
        self._is_finished = False
        self._records = RecordDigests()

    def readable(self) -> bool:
        """Return True, because the stream can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the stub has a wider type
        """Copy the next bytes into a buffer; 0 at the end."""
        while not self._written.tell() and not self._is_finished:
            message = next(self._messages, None)
            if message is None:
                self._writer.finish(self._records)
                self._is_finished = True
            elif message.HasField("digest"):
                self._records = _records_of(message)
            else:
                self._writer.add(_checked(message))
        produced = self._written.getvalue()
        count = min(len(produced), len(buffer))
        buffer[:count] = produced[:count]
        self._written.seek(0)
        self._written.truncate()
        self._written.write(produced[count:])
        return count
