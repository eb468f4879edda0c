"""List the versions of all formats of the service; one enum per format, one line per version.

The cluster version is the version that all members of a cluster speak. It is part of the replicated
state and decides which commands may enter the log, how the fields of a request are read, in which
format a node writes its state, the change feed and snapshots, and how members compare their states.
A node that runs a newer release writes the older formats until the cluster version is raised, so
that the older release can be started again on its data directory.

Release 0.1.0 has the first version of each format that later releases must read. Some numbers do
not begin at 1, because development builds had earlier formats. The formats of the data directory
and of the connections between members are in ``taskraft_replication.versions``.

A new version needs: a line in each enum that changes, a line in ``FORMATS``, the layouts that
write it, a step in ``queue.persistence.upgrade_chain`` if stored records change, and golden files
(``make golden``). A change of the records that ``queue.persistence.record_digest`` hashes, or of
the hash, needs a new ``DigestVersion``. See docs/upgrading.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class ClusterVersion(IntEnum):
    """Versions of the commands in the log, and of all that the members must agree on."""

    V1 = 1
    """Release 0.1.0: the commands of ``proto/taskraft/log/v1/log.proto`` up to number 50."""


class StateVersion(IntEnum):
    """Versions of the records in the database.

    The first byte of the meta record is the version of all records.
    """

    V18 = 18
    """Release 0.1.0: the meta record begins with format and cluster version."""


class FeedVersion(IntEnum):
    """Versions of the stored chunks of the change feed; the first number of each chunk."""

    V2 = 2
    """Development builds: columns, with the bytes of the partition before the chunk in its header.

    This release reads the format and does not write it.
    """

    V3 = 3
    """Development builds: the columns of ``V2``, then message, fingerprint and target of the cause.

    This release reads the format and does not write it.
    """

    V4 = 4
    """Release 0.1.0: the columns of ``V3``, then whether the event counts as a failed attempt."""


class SnapshotVersion(IntEnum):
    """Versions of the content of a snapshot, between members and in snapshot files."""

    V2 = 2
    """Release 0.1.0: names and sizes of the database's files, then their contents."""


class SnapshotFileVersion(IntEnum):
    """Versions of the frame of a snapshot file: header and digest; the first line of the file.

    The command line writes the frame, so the cluster version does not decide the format.
    """

    V1 = 1
    """Development builds: header as JSON, content of a snapshot, SHA-256.

    This release reads the format and does not write it.
    """

    V2 = 2
    """Release 0.1.0: the same, with the digests of the records as JSON before the SHA-256."""


class DigestVersion(IntEnum):
    """Versions of the digests of a state; members compare digests of equal versions only."""

    V1 = 1
    """Release 0.1.0: 16 hashes of the records of tasks, keys, sessions, schedules and groups."""


def known_formats(versions: type[IntEnum]) -> str:
    """Return the formats that this release reads, for an operator."""
    return f"format {', '.join(str(int(version)) for version in sorted(versions))}"


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats that a node writes, and compares, while one cluster version is in force."""

    state: StateVersion
    feed: FeedVersion
    snapshot: SnapshotVersion
    digest: DigestVersion


FORMATS: Final[Mapping[ClusterVersion, Formats]] = {
    ClusterVersion.V1: Formats(
        StateVersion.V18, FeedVersion.V4, SnapshotVersion.V2, DigestVersion.V1
    ),
}
LOWEST: Final = min(ClusterVersion)
HIGHEST: Final = max(ClusterVersion)


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The cluster versions that a node speaks, both ends included."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        """Return whether the node speaks a version."""
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        """Return the range for an operator."""
        if self.lowest == self.highest:
            return f"cluster version {self.lowest}"
        return f"cluster versions {self.lowest} to {self.highest}"


OWN_RANGE: Final = VersionRange(LOWEST, HIGHEST)
"""The cluster versions that this release speaks."""


class ClusterVersionUnknown(Exception):
    """The data needs a cluster version that this release does not speak; nothing was changed."""

    def __init__(self, needed: int) -> None:
        super().__init__(
            f"the cluster is at cluster version {needed}, and this release speaks {OWN_RANGE}; "
            f"run a release that speaks cluster version {needed}"
        )
        self.needed = needed


def check_version(version: int) -> ClusterVersion:
    """Return a cluster version that this release speaks.

    Raises:
        ClusterVersionUnknown: this release does not speak it.
    """
    if version not in OWN_RANGE:
        raise ClusterVersionUnknown(version)
    return ClusterVersion(version)
