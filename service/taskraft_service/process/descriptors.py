"""Raise the limit of open files, and share the descriptors among files and connections.

Every port takes fewer connections than there are descriptors for them. Files of the log and the
state can then always be opened, however many connections arrive.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.storage.rocks import TABLES_OPEN_MAX

DESCRIPTORS_MIN: Final = 512
"""Minimum limit of open files with which a node starts."""
DESCRIPTORS_MAX: Final = 65_536
"""Descriptors that a node uses at most; a higher limit is left alone."""

_OWN: Final = 192
"""Descriptors of an idle node (about 40), of the port for probes (64), of outgoing connections, and
for log files."""
_PER_PEER_CONNECTION: Final = 3
"""A connection that is forwarded to gRPC has two further ends in this process."""
_PEER_CONNECTIONS_MAX: Final = 1_024
_TABLES_MAX: Final = 1_024


@dataclass(slots=True, frozen=True)
class DescriptorShares:
    """The largest numbers of things that need descriptors."""

    tables: int
    """Open table files of the state."""
    peer_connections: int
    client_connections: int


def raise_limit() -> None:
    """Raise the limit of open files as far as this process may and a node needs.

    Raises:
        ConfigInvalid: the limit is too low for a node.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(DESCRIPTORS_MAX, _number(hard))
    if _number(soft) < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < DESCRIPTORS_MIN:
        raise ConfigInvalid(
            f"the limit of open files is {wanted}; a node needs at least {DESCRIPTORS_MIN}: "
            f"raise the hard limit (ulimit -Hn, LimitNOFILE=)"
        )


def current_shares() -> DescriptorShares:
    """Return the shares of the descriptors that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return share(max(DESCRIPTORS_MIN, min(DESCRIPTORS_MAX, _number(soft))))


def _number(limit: int) -> int:
    return DESCRIPTORS_MAX if limit == resource.RLIM_INFINITY else limit


def share(limit: int) -> DescriptorShares:
    """Return the shares of ``limit`` descriptors; connections of clients get the rest."""
    assert limit >= DESCRIPTORS_MIN
    tables = min(_TABLES_MAX, limit // 8)
    peers = min(_PEER_CONNECTIONS_MAX, limit // 32)
    # A frozen state, from which a snapshot is read, has tables of its own.
    used = _OWN + tables + TABLES_OPEN_MAX + _PER_PEER_CONNECTION * peers
    return DescriptorShares(tables, peers, limit - used)
