"""List the versions of the formats of replication; one enum per format, one line per version.

Release 0.1.0 has the first version of each format that later releases must read. Some numbers do
not begin at 1, because development builds had earlier formats.
"""

from __future__ import annotations

from enum import IntEnum


class ProtocolVersion(IntEnum):
    """Versions of the protocol between members.

    Each member names the lowest and the highest version that it speaks, and both use the highest
    version that both speak.
    """

    V2 = 2
    """Release 0.1.0: frames are sent as pieces with checksums."""


class DirectoryVersion(IntEnum):
    """Versions of the data directory: log segments and small files, in the header of each file.

    A release reads a new version at least one release before any release writes it, so that the
    previous release can be started again.
    """

    V3 = 3
    """Release 0.1.0: identity, incarnation, hard state, membership, log start, and segments."""
