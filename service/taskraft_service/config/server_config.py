"""Read the settings of one node, once, from environment variables and a TOML file.

The environment (TASKRAFT_...) outweighs the file, which is named by TASKRAFT_CONFIG. No other
module reads the environment. Every number ends in its unit.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from taskraft_replication.storage.failpoints import Failpoints, parse_rules
from taskraft_service.config.addresses import (
    ConfigInvalid,
    PeerAddress,
    host_of,
    parse_peers,
    port_of,
)
from taskraft_service.config.security import SecuritySettings
from taskraft_service.limits import PAYLOAD_BYTES_MAX, SESSION_TTR_DEFAULT_MS

CONFIG_VARIABLE: Final = "TASKRAFT_CONFIG"
MIB: Final = 1024 * 1024
ELECTION_HEARTBEATS_MIN: Final = 2
"""An election timeout of fewer heartbeats would call elections over one lost packet."""

_ANY_HOST: Final = frozenset({"0.0.0.0", "[::]", "::"})  # noqa: S104 - told from real ones


class ServerConfig(SecuritySettings):
    """All settings of a node. Names in the environment have the prefix TASKRAFT_."""

    model_config = SettingsConfigDict(env_prefix="TASKRAFT_", frozen=True, extra="forbid")

    node_name: str = Field(default_factory=socket.gethostname, min_length=1, max_length=128)
    cluster_id: str = Field(default="taskraft", min_length=1, max_length=128)
    data_dir: Path = Path("data")
    listen: str = "127.0.0.1:7401"
    """For clients."""
    peer_listen: str = "127.0.0.1:7402"
    """For the other members."""
    http_listen: str = "127.0.0.1:7480"
    """For probes and metrics."""
    advertise: str = ""
    """What clients are told to call when this node leads. Empty: from peers, or listen."""
    peer_advertise: str = ""
    """What other members are told to call, if this node joins. Empty: peer_listen."""
    peers: str = ""
    """The members of a new cluster, see ``parse_peers``. Empty: this node alone."""
    join: str = ""
    """Client addresses of a cluster that exists, separated by commas: at its first start this node
    joins it, instead of founding one. Peers are then not needed."""
    join_wait_ms: int = Field(default=60_000, ge=0)
    """How long a node that joins asks again when nobody answers."""

    failpoints: str = ""
    """What goes wrong on purpose, see ``taskraft_replication.storage.failpoints``. For tests."""
    auto_create_tubes: bool = False
    """The first put makes its tube (kind fifottl). For development."""
    log_format: Literal["auto", "json", "console"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    tick_ms: int = Field(default=50, ge=1, le=1_000)
    heartbeat_ms: int = Field(default=150, ge=1, le=10_000)
    election_timeout_ms: int = Field(default=350, ge=2, le=60_000)
    """The shortest; each is drawn between this and its double."""
    failover_grace_ms: int = Field(default=SESSION_TTR_DEFAULT_MS, ge=0)
    stop_grace_ms: int = Field(default=10_000, ge=0, le=600_000)
    """How long calls in hand may take to end when the node stops."""

    payload_bytes_max: int = Field(default=PAYLOAD_BYTES_MAX, ge=1, le=16 * MIB)
    calls_max: int = Field(default=10_000, ge=1)
    """Calls and streams in hand; more are refused."""

    entry_bytes_max: int = Field(default=4 * MIB, ge=1024)
    """An entry is closed when it has grown beyond this; a larger command stands alone."""
    entry_commands_max: int = Field(default=1_000, ge=1)
    entries_in_flight_max: int = Field(default=4, ge=1, le=64)
    pending_commands_max: int = Field(default=20_000, ge=1)
    """Commands that wait for an entry; more are refused with OVERLOADED."""
    pending_bytes_max: int = Field(default=64 * MIB, ge=MIB)

    log_segment_bytes: int = Field(default=16 * MIB, ge=4096, le=1024 * MIB)
    log_flush_bytes: int = Field(default=16 * MIB, ge=4096)
    """Log after which the state is flushed and the log before it may go; about so much is replayed
    at a start."""
    log_kept_entries: int = Field(default=10_000, ge=0)
    """Entries kept for followers that are a little behind; others get a snapshot."""
    log_kept_bytes: int = Field(default=128 * MIB, ge=0)
    """Bytes that these entries may have together; a start reads all of the log."""

    collect_entries: int = Field(default=256, ge=1)
    """Entries whose changes go to RocksDB in one batch, at most. More of them spare writes of tasks
    that come and go, but the event loop stands still for the batch (15 us per task)."""
    collect_ms: int = Field(default=500, ge=1)
    """Longest time between two such batches. Half a second spared an eighth of the CPU of tasks
    that come and go in batches, against a tenth."""
    block_cache_bytes: int = Field(default=64 * MIB, ge=MIB)
    write_buffer_bytes: int = Field(default=32 * MIB, ge=MIB)
    temporary_bytes_max: int = Field(default=64 * MIB, ge=0)
    """What the contents of temporary tubes may take of a leader's memory."""
    disk_low_bytes: int = Field(default=256 * MIB, ge=0)
    """Puts are refused when less is free on the disk."""

    feed_partitions: int = Field(default=8, ge=1, le=1_024)
    """Fixed when the cluster is made."""
    feed_retention_ms: int = Field(default=7 * 86_400_000, ge=1_000)
    feed_bytes_max: int = Field(default=16 * 1024 * MIB, ge=MIB)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Name the sources: arguments, then the environment, then the TOML file."""
        del dotenv_settings, file_secret_settings
        path = os.environ.get(CONFIG_VARIABLE)
        file = (TomlConfigSettingsSource(settings_cls, Path(path)),) if path else ()
        return (init_settings, env_settings, *file)

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        for name in ("listen", "peer_listen", "http_listen", "advertise", "peer_advertise"):
            address = getattr(self, name)
            if address:
                self._check_address(name, address)
        if self.election_timeout_ms < ELECTION_HEARTBEATS_MIN * self.heartbeat_ms:
            raise ValueError("election_timeout_ms is less than two heartbeats")
        if self.heartbeat_ms < self.tick_ms:
            raise ValueError("heartbeat_ms is less than a tick")
        if self.payload_bytes_max > self.pending_bytes_max:
            raise ValueError("payload_bytes_max is more than pending_bytes_max")
        self.armed_failpoints()
        try:
            members = self.members
        except ConfigInvalid as error:
            raise ValueError(str(error)) from error
        for address in self.join_addresses:
            self._check_address("join", address)
        if self.join:
            self._check_reachable()
        names = [member.name for member in members] + [self.node_name]
        is_alone = len(members) == 1 and not self.join
        self.check_security(self.cluster_id, names, is_alone=is_alone)
        if not self.join and self.node_name not in {member.name for member in members}:
            raise ValueError(f'peers does not name this node, "{self.node_name}"')
        return self

    def _check_reachable(self) -> None:
        """Make sure that a node that joins tells others where it is, not that it is everywhere."""
        own = self.member
        for name, address in (
            ("peer_advertise", own.peer_address),
            ("advertise", own.client_address),
        ):
            if host_of(address) in _ANY_HOST:
                raise ValueError(f"{name} is needed: others cannot call {address}")

    @staticmethod
    def _check_address(name: str, address: str) -> None:
        try:
            port_of(address)
        except ConfigInvalid as error:
            raise ValueError(f"{name}: {error}") from error

    def armed_failpoints(self) -> Failpoints:
        """Return the failpoints with their rules, not crossed yet."""
        return Failpoints(parse_rules(self.failpoints))

    @property
    def members(self) -> tuple[PeerAddress, ...]:
        """The members of a new cluster; this node alone where no peers are named."""
        if self.peers:
            return parse_peers(self.peers, port_of(self.listen))
        return (PeerAddress(1, self.node_name, self.peer_listen, self.listen),)

    @property
    def join_addresses(self) -> tuple[str, ...]:
        """Where the cluster to be joined can be asked."""
        return tuple(filter(None, (address.strip() for address in self.join.split(","))))

    @property
    def member(self) -> PeerAddress:
        """This node among the members; its number is 0 where the settings do not tell it."""
        if self.peers or not self.join:
            for member in self.members:
                if member.name == self.node_name:
                    return member
        peer_address = self.peer_advertise or self.peer_listen
        return PeerAddress(0, self.node_name, peer_address, self.advertise or self.listen)

    @property
    def client_address(self) -> str:
        """What clients are told to call when this node leads."""
        return self.advertise or self.member.client_address


def read_config() -> ServerConfig:
    """Read the settings.

    Raises:
        ConfigInvalid: with one line that names the first setting at fault.
    """
    path = os.environ.get(CONFIG_VARIABLE)
    if path and not Path(path).is_file():
        raise ConfigInvalid(f"{CONFIG_VARIABLE}: no file {path}")
    try:
        return ServerConfig()
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "settings"
        raise ConfigInvalid(f"{place}: {first['msg'].removeprefix('Value error, ')}") from error
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"{path}: {error}") from error
