"""Raise the limit of open files, and divide the descriptors between files and connections.

Each port has a maximum number of connections. Descriptors for the files of the log and of the state
are therefore left over, whatever the number of clients.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.storage.rocks import TABLES_OPEN_MAX

DESCRIPTORS_MIN: Final = 512
"""Minimum limit of open files; a node does not start with less."""
DESCRIPTORS_MAX: Final = 65_536
"""Maximum limit of open files that a node sets; a higher limit is not lowered."""

_OWN: Final = 192
"""Reserved descriptors: an idle node (about 40), the port for probes (64), outgoing connections,
and log files."""
_PER_PEER_CONNECTION: Final = 3
"""Descriptors of one peer connection: forwarding to gRPC adds two further sockets in this
process."""
_PEER_CONNECTIONS_MAX: Final = 1_024
_TABLES_MAX: Final = 1_024


@dataclass(slots=True, frozen=True)
class DescriptorShares:
    """Maximum numbers of open table files and of connections."""

    tables: int
    """Open table files of the state."""
    peer_connections: int
    client_connections: int


def raise_limit() -> None:
    """Raise the limit of open files up to the hard limit, but to at most ``DESCRIPTORS_MAX``.

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
    """Divide the current limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return share(max(DESCRIPTORS_MIN, min(DESCRIPTORS_MAX, _number(soft))))


def _number(limit: int) -> int:
    return DESCRIPTORS_MAX if limit == resource.RLIM_INFINITY else limit


def share(limit: int) -> DescriptorShares:
    """Divide ``limit`` descriptors; client connections get the descriptors that are left."""
    assert limit >= DESCRIPTORS_MIN
    tables = min(_TABLES_MAX, limit // 8)
    peers = min(_PEER_CONNECTIONS_MAX, limit // 32)
    # The copy of the state from which a snapshot is read opens further tables.
    used = _OWN + tables + TABLES_OPEN_MAX + _PER_PEER_CONNECTION * peers
    return DescriptorShares(tables, peers, limit - used)
