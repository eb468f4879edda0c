"""Restore a snapshot file into the data directory of the first node of a new cluster.

The new cluster has one member at first. Further nodes join it with empty data directories, so all
nodes get the same state from the first one, and the new cluster can have any size.
"""

from __future__ import annotations

import secrets
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from taskraft_replication.core.types import ConfState, LogIndex, MemberId, Term
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.storage.filesystem import FileSystem
from taskraft_replication.storage.group_storage import StorageConfig, create_restored
from taskraft_replication.storage.metadata import Identity
from taskraft_service.backup import encryption
from taskraft_service.backup.restored_directory import RestoreRefused, restored_directory
from taskraft_service.backup.snapshot_file import (
    RecordDigests,
    Report,
    SnapshotFileInvalid,
    SnapshotFileReader,
    SnapshotInfo,
    report_nothing,
)
from taskraft_service.cluster.cluster_members import info_of
from taskraft_service.cluster.member_identity import GROUP_ID
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.drivers import installed_drivers
from taskraft_service.machine.open_database import OpenDatabase
from taskraft_service.machine.state_comparison import places_of
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence.record_digest import DIGESTS
from taskraft_service.storage.directory import STATE_DIRECTORY, StateDirectory, StateForeign
from taskraft_service.storage.node_storage import NODE_STORAGE, NodeStorage
from taskraft_service.storage.rocks import TABLES_OPEN_MAX, RocksStore, StateDamaged
from taskraft_service.storage.snapshot import SnapshotDamaged, SnapshotForeign, build

FIRST_MEMBER: Final = MemberId(1)
CACHE_BYTES: Final = 32 << 20


@dataclass(slots=True, frozen=True)
class SnapshotSummary:
    """The content of a snapshot, for people."""

    info: SnapshotInfo
    tubes: int
    tasks: int
    sessions: int
    feed_id: str


@contextmanager
def plain_file(
    path: Path, identity: Path | None, scratch: Path | None = None
) -> Iterator[BinaryIO]:
    """Open a snapshot file; decrypt an encrypted file into a temporary file in ``scratch`` first.

    Raises:
        KeyUnusable: the identity is missing or invalid.
        SnapshotFileInvalid: the file cannot be decrypted.
    """
    with path.open("rb") as file:
        is_encrypted = file.read(len(encryption.MAGIC)) == encryption.MAGIC
        file.seek(0)
        if not is_encrypted:
            yield file
            return
        if identity is None:
            raise encryption.KeyUnusable(f"{path} is encrypted; name the private key (--identity)")
        with tempfile.TemporaryFile(dir=scratch) as plain:
            encryption.decrypt(file, plain, identity)
            plain.seek(0)
            yield plain


def summarize(
    file: BinaryIO, scratch: Path | None = None, report: Report = report_nothing
) -> SnapshotSummary:
    """Check a whole snapshot file: its digest, and that a queue can be opened from it.

    Args:
        file: the snapshot file, decrypted.
        scratch: folder for the temporary state; default: that of the system.
        report: called after each piece of the file.

    Raises:
        SnapshotFileInvalid: the file is damaged.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix="taskraft-") as directory:
        reader = SnapshotFileReader(file, report)
        with _opened(Path(directory) / "state", reader) as database:
            queue = database.queue
            counts = queue.task_counts()
            return SnapshotSummary(
                reader.info,
                tubes=len(counts),
                tasks=sum(sum(states) for states in counts.values()),
                sessions=queue.session_count,
                feed_id=queue.feed.feed_id,
            )


def restore_cluster(
    file: BinaryIO,
    config: ServerConfig,
    *,
    same_cluster: bool = False,
    report: Report = report_nothing,
    storage: NodeStorage = NODE_STORAGE,
) -> SnapshotInfo:
    """Restore a snapshot into the empty data directory of a node; the node then leads alone.

    A directory with the files of an interrupted restore counts as empty; they are removed first.

    The change feed gets another id, because events after the snapshot differ from those of the old
    cluster. A node of the old cluster is not accepted by the new one.

    Args:
        file: the snapshot file, decrypted.
        config: settings of the node: directory, name, addresses and cluster.
        same_cluster: allow the cluster id of the old cluster, which must never run again.
        report: called after each piece of the file.
        storage: opens the files and the database.

    Raises:
        RestoreRefused: the directory is in use, or the cluster id is that of the old cluster.
        SnapshotFileInvalid: the file is damaged.
    """
    reader = SnapshotFileReader(file, report)
    if reader.info.cluster_id == config.cluster_id and not same_cluster:
        raise RestoreRefused(
            f"the snapshot is of cluster {config.cluster_id!r}: set another TASKRAFT_CLUSTER_ID, "
            f"or confirm with --same-cluster-id that no node of the old cluster will run again"
        )
    with restored_directory(config.data_dir, storage.open_files) as files:
        _restore_into(config, reader, files, storage)
    return reader.info


def _restore_into(
    config: ServerConfig, reader: SnapshotFileReader, files: FileSystem, storage: NodeStorage
) -> None:
    """Write the state, then the files of the group, whose identity makes the directory valid."""
    state = config.data_dir / STATE_DIRECTORY
    directory = StateDirectory(state, config.cluster_id, FIRST_MEMBER, storage.open_files)
    with _opened(directory.fresh(), reader, storage) as database:
        queue = database.queue
        index = LogIndex(queue.applied_index)
        queue.feed.rename(str(uuid.uuid4()))
        database.collect()
        database.flush()
    directory.switch()
    directory_id = secrets.token_hex(8)
    member = replace(info_of(config.member), member=FIRST_MEMBER, directory_id=directory_id)
    create_restored(
        files,
        StorageConfig(
            identity=Identity(config.cluster_id, FIRST_MEMBER, GROUP_ID, config.node_name),
            founders=ConfState(voters=(FIRST_MEMBER,), roster=roster_of((member,))),
            salt=secrets.randbits(32),
            directory_id=directory_id,
        ),
        index,
        Term(reader.info.term),
    )


def _difference(store: RocksStore, records: RecordDigests) -> str:
    """Return how records differ from the state that the node has saved; empty: they do not."""
    if not records.version:
        return ""
    if records.version not in DIGESTS:
        return (
            f"the digests of the records have version {records.version}, which this release does"
            f" not compute; use the release that wrote the file"
        )
    pairs = enumerate(zip(_digests(store, records.version), records.parts, strict=True))
    wrong = [part for part, (own, right) in pairs if own != right]
    if not wrong:
        return ""
    return f"the records differ from the state of the node that was saved, in {places_of(wrong)}"


def _digests(store: RocksStore, version: int) -> Sequence[int]:
    """Return the digests of the records of a store."""
    steps = DIGESTS[version](store.view().scan)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            parts: Sequence[int] = stop.value
            return parts


@contextmanager
def _opened(
    place: Path, reader: SnapshotFileReader, storage: NodeStorage = NODE_STORAGE
) -> Iterator[OpenDatabase]:
    """Build the database of a snapshot at ``place`` and open the queue in it.

    Raises:
        SnapshotFileInvalid: the file is damaged, or was written by another version.
    """
    try:
        build(place, reader.content())
        store = storage.open_store(place, CACHE_BYTES, CACHE_BYTES, TABLES_OPEN_MAX)
        difference = _difference(store, reader.records)
        if difference:
            store.close()
            raise SnapshotFileInvalid(difference)
        database = OpenDatabase(place, store, Limits(), installed_drivers())
    except (SnapshotDamaged, SnapshotForeign, StateDamaged, StateForeign) as error:
        raise SnapshotFileInvalid(str(error)) from error
    try:
        found = database.queue.applied_index
        if found != reader.info.index:
            raise SnapshotFileInvalid(f"the content ends at entry {found}, not {reader.info.index}")
        yield database
    finally:
        store.close()
