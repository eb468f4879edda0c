"""Parse the addresses of cluster members."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_ORDINAL: Final = re.compile(r"-(\d+)$")
_PEER: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]{1,128})=(?:(?P<id>\d{1,9})@)?(?P<peer>[^/,\s]+)(?:/(?P<client>[^/,\s]+))?"
)


class ConfigInvalid(Exception):
    """The settings are malformed or inconsistent; the text names the setting, in one line."""


@dataclass(slots=True, frozen=True)
class PeerAddress:
    """A member of the cluster and the addresses at which other processes reach it."""

    member_id: int
    name: str
    peer_address: str
    """Address at which other members reach this member."""
    client_address: str
    """Address at which clients, and followers that forward calls, reach this member."""


def ordinal_of(name: str) -> int | None:
    """Return the number after the last hyphen at the end of a node's name, or None."""
    found = _ORDINAL.search(name)
    return int(found[1]) if found else None


def port_of(address: str) -> int:
    """Return the port of ``host:port``.

    Raises:
        ConfigInvalid: the port is missing or is not a number up to 65535.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigInvalid(f'"{address}" is not host:port with a port up to 65535')
    return int(port)


def host_of(address: str) -> str:
    """Return the host of ``host:port``."""
    return address.rpartition(":")[0]


def parse_peers(text: str, client_port: int) -> tuple[PeerAddress, ...]:
    """Parse ``name=[id@]host:port[/client_host:client_port],...`` into members.

    The default id is the number at the end of the name plus 1, otherwise the 1-based position in
    the list. The default client address is the same host with ``client_port``, the client port of
    this node.

    Raises:
        ConfigInvalid: a member is malformed, or a name or an id appears twice.
    """
    peers = []
    for place, part in enumerate(filter(None, (part.strip() for part in text.split(",")))):
        match = _PEER.fullmatch(part)
        if match is None:
            raise ConfigInvalid(
                f'TASKRAFT_PEERS: "{part}" is not name=[id@]host:port[/client_host:client_port]'
            )
        ordinal = ordinal_of(match["name"])
        member_id = int(match["id"] or (place if ordinal is None else ordinal) + 1)
        port_of(match["peer"])
        client = match["client"] or f"{host_of(match['peer'])}:{client_port}"
        port_of(client)
        peers.append(PeerAddress(member_id, match["name"], match["peer"], client))
    for what, known in (
        ("name", [peer.name for peer in peers]),
        ("id", [peer.member_id for peer in peers]),
    ):
        if len(set(known)) != len(known):
            raise ConfigInvalid(
                f"TASKRAFT_PEERS: a {what} appears twice; each member needs its own"
            )
    return tuple(peers)
