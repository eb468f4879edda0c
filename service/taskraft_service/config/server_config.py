"""Read the settings of a node from environment variables and a TOML file.

An environment variable TASKRAFT_... overrides the same setting in the file that TASKRAFT_CONFIG
names. No other module reads the environment. The docstring of each setting is its description in
docs/configuration.md (`python -m tools.configuration_page`).
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from taskraft_service.config.addresses import (
    ConfigInvalid,
    PeerAddress,
    host_of,
    ordinal_of,
    parse_peers,
    port_of,
)
from taskraft_service.config.relations import SettingsConflict, check_relations
from taskraft_service.config.security import SecuritySettings
from taskraft_service.config.storage import GIB, MIB, TIB, StorageSettings
from taskraft_service.limits import (
    COMMAND_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    SESSION_TTR_DEFAULT_MS,
    SESSION_TTR_MAX_MS,
)

CONFIG_VARIABLE: Final = "TASKRAFT_CONFIG"
DAY_MS: Final = 86_400_000
_CONFLICT: Final = "settings_conflict"
"""pydantic error type of settings that contradict each other."""

_ANY_HOST: Final = frozenset({"0.0.0.0", "[::]", "::"})  # noqa: S104 - compared with, not bound


class ServerConfig(SecuritySettings, StorageSettings):
    """All settings of a node."""

    model_config = SettingsConfigDict(env_prefix="TASKRAFT_", frozen=True, extra="forbid")

    # -------------------------------------------------------------------- Identity and addresses

    node_name: str = Field(default_factory=socket.gethostname, min_length=1, max_length=128)
    """Name of this node. It must stay the same across restarts and be unique in the cluster.
    Default: the host name."""
    cluster_id: str = Field(default="taskraft", min_length=1, max_length=128)
    """Name of the cluster. A node refuses peers and data directories of another cluster."""
    data_dir: Path = Path("data")
    """Directory of the log, the state and the identity of this node; one process per directory."""
    listen: str = "127.0.0.1:7401"
    """Address (`host:port`) on which this node serves gRPC to clients."""
    edge: Literal["auto", "native", "grpc"] = "auto"
    """Server of the client port. `native`: the distribution taskraft-edge, which is built with
    `make native`. `grpc`: grpc.aio, which is slower. `auto`: `native` if it is installed."""
    peer_listen: str = "127.0.0.1:7402"
    """Address (`host:port`) for the other members. Clients must not be able to reach it."""
    http_listen: str = "127.0.0.1:7480"
    """Address (`host:port`) of `/startupz`, `/readyz`, `/livez` and `/metrics`."""
    advertise: str = ""
    """Address (`host:port`) that clients are told to call when this node leads. Empty: the client
    address of this node in `peers`, otherwise `listen`."""
    peer_advertise: str = ""
    """Address (`host:port`) at which other members reach this node after it joined with `join`.
    Empty: `peer_listen`."""
    peers: str = ""
    """Founding members of a new cluster, the same list on each of them:
    `name=[id@]host:port[/client_host:client_port]`, separated by commas. The default id is the
    number at the end of the name plus 1 (`node-0` has id 1), otherwise the position in the list.
    The default client address is the same host with the port of `listen`. Empty: this node is the
    only founder. A node that the list does not name joins the cluster of the listed nodes."""
    bootstrap: bool = True
    """Whether this node may found a new cluster if its data directory is empty and `peers` names
    it. `false`: it asks the other nodes to replace its member, and waits until they agree. So nodes
    that have all lost their data do not found an empty cluster."""
    join: str = ""
    """Client addresses (`host:port,host:port`) of an existing cluster, or peer addresses if the
    nodes have certificates. At its first start this node joins that cluster instead of founding a
    new one; `peers` is then not needed."""
    join_as: Literal["learner", "voter"] = "learner"
    """Role of a node that joins. `learner`: it has no vote until an operator promotes it. `voter`:
    it asks for its own promotion when it has caught up."""
    admits: str = ""
    """Names of nodes that may add themselves to a cluster with an access file, as patterns in which
    `*` stands for any characters, separated by commas. Their certificates prove their names. Such a
    node forwards only calls that have a token, until an operator has admitted it. Empty: an
    operator adds each node with `taskraft cluster add` first. A node that was removed never adds
    itself again. The setting of the leader counts."""
    join_wait_ms: int = Field(default=60_000, ge=0, le=DAY_MS)
    """Time for which a joining node repeats its request while no member answers."""
    replace_member: Literal["off", "damaged", "always"] = "damaged"
    """Condition under which this node takes the place of its own member under a new member id,
    after its data was lost. `damaged`: the data directory has data of this node, and the log or the
    vote is damaged or missing. `always`: also if the data directory is empty, but the cluster knows
    the name of this node. `off`: never; the node does not start. See [disaster.md](disaster.md).
    """

    replicas_file: Path | None = None
    """File with the wanted number of nodes, for names that end in an ordinal (`taskraft-4`). A node
    whose ordinal is not below the number removes its own member when it stops, and does not join
    with an empty data directory. Empty, or no such file: stopping removes no member. See
    [members.md](members.md#scale-on-kubernetes)."""

    # -------------------------------------------------------------------- Tubes and sessions

    auto_create_tubes: bool = False
    """Whether the first put creates a missing tube, of kind `fifottl`. `Configure` overrides the
    value for the whole cluster."""
    failover_grace_ms: int = Field(default=SESSION_TTR_DEFAULT_MS, ge=0, le=SESSION_TTR_MAX_MS)
    """Minimum time that a session survives after a change of leader. `Configure` overrides the
    value for the whole cluster."""
    temporary_bytes_max: int = Field(default=64 * MIB, ge=0, le=TIB)
    """Maximum memory of all temporary tubes on the leader; further puts are refused with
    `LIMIT_REACHED`. 0: every put into a temporary tube is refused."""

    # -------------------------------------------------------------------- Change feed

    feed_partitions: int = Field(default=8, ge=1, le=1_024)
    """Number of partitions of the change feed. The first leader of the cluster fixes the number;
    later changes of this setting have no effect."""
    feed_retention_ms: int = Field(default=7 * DAY_MS, ge=1_000, le=36_500 * DAY_MS)
    """Maximum age of events in the change feed; older events are deleted. `Configure` overrides the
    value for the whole cluster."""
    feed_bytes_max: int = Field(default=16 * GIB, ge=MIB, le=1024 * TIB)
    """Maximum size of the change feed on each node; the oldest events are deleted first.
    `Configure` overrides the value for the whole cluster."""

    # -------------------------------------------------------------------- Limits of calls

    payload_bytes_max: int = Field(default=PAYLOAD_BYTES_MAX, ge=1, le=16 * MIB)
    """Maximum payload of one task."""
    calls_max: int = Field(default=10_000, ge=1, le=1_000_000)
    """Maximum number of concurrent calls, without streams; further calls are refused with
    `OVERLOADED`."""
    streams_max: int = Field(default=20_000, ge=1, le=1_000_000)
    """Maximum number of concurrent streams; further streams are refused with `OVERLOADED`."""
    calls_share_max: int = Field(default=7_500, ge=1, le=1_000_000)
    """Maximum number of concurrent calls of one principal, without streams; further calls are
    refused with `OVERLOADED`. The maximum in force is never above three quarters of `calls_max`,
    rounded up. Calls without a principal have no share."""
    streams_share_max: int = Field(default=15_000, ge=1, le=1_000_000)
    """Maximum number of concurrent streams of one principal; further streams are refused with
    `OVERLOADED`. The maximum in force is never above three quarters of `streams_max`, rounded
    up. Streams without a principal have no share."""
    connections_share_max: int = Field(default=1_000_000, ge=1, le=1_000_000)
    """Maximum number of client connections on which one principal has a call or stream; calls on
    further connections are refused with `OVERLOADED`. The maximum in force is never above three
    quarters of the client connections that the limit of open files allows, rounded up."""
    call_bytes_max: int = Field(default=256 * MIB, ge=MESSAGE_BYTES_MAX, le=TIB)
    """Maximum total size of the requests in progress, of the answers that clients have not received
    yet, and of the responses that streams have not sent yet. Above the limit, requests larger than
    16 KiB are refused with `OVERLOADED`. From half of the limit, a stream with unsent responses
    takes no further tasks. Answers above 16 KiB may use a quarter of the limit; a further read
    waits up to 10 s and is then refused with `OVERLOADED`."""
    pending_commands_max: int = Field(default=20_000, ge=1, le=1_000_000)
    """Maximum number of commands that wait for a log entry; further commands are refused with
    `OVERLOADED`."""
    pending_bytes_max: int = Field(default=64 * MIB, ge=COMMAND_BYTES_MAX, le=GIB)
    """Maximum total size of the commands that wait for a log entry; further commands are refused
    with `OVERLOADED`. The minimum is the size of the largest command, because a smaller limit would
    always refuse such a command."""
    disk_low_bytes: int = Field(default=256 * MIB, ge=0, le=1024 * TIB)
    """Free disk space below which puts are refused with `DISK_LOW`. Takes and settlements continue,
    because they free space. 0: puts are never refused."""
    stop_grace_ms: int = Field(default=10_000, ge=0, le=600_000)
    """Maximum time that a stopping node waits for running calls before it cancels them."""

    # -------------------------------------------------------------------- Raft timing

    tick_ms: int = Field(default=50, ge=1, le=1_000)
    """Length of one Raft tick. `heartbeat_ms` and `election_timeout_ms` are rounded to ticks."""
    heartbeat_ms: int = Field(default=150, ge=1, le=10_000)
    """Interval of the leader's heartbeats."""
    election_timeout_ms: int = Field(default=350, ge=2, le=60_000)
    """Minimum time without a leader before a follower campaigns. Each follower draws its timeout
    between this value and twice this value."""

    # -------------------------------------------------------------------- Process logs

    log_format: Literal["auto", "json", "console"] = "auto"
    """Format of the process log on stderr: JSON lines, or readable lines for a terminal. `auto`
    chooses `console` if stderr is a terminal."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of the lines in the process log."""
    audit_log: str = ""
    """Destination of the audit log (see [security.md](security.md)): the path of a file to append
    to, or `fd:3` for the open descriptor 3. Empty: the process log."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence: arguments, environment, TOML file."""
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
        try:
            check_relations(self)
        except SettingsConflict as error:
            # pydantic keeps the names of the settings in the context of its own error.
            context = {"text": str(error), "settings": error.settings}
            raise PydanticCustomError(_CONFLICT, "{text}", context) from error
        try:
            members = self.members
        except ConfigInvalid as error:
            raise ValueError(str(error)) from error
        for address in self.join_addresses:
            self._check_address("join", address)
        if self.is_joiner:
            self._check_reachable()
        if self.replicas_file is not None and ordinal_of(self.node_name) is None:
            raise ValueError(f'replicas_file: the name "{self.node_name}" does not end in -NUMBER')
        names = [member.name for member in members] + [self.node_name]
        is_alone = len(members) == 1 and not self.is_joiner
        self.check_security(self.cluster_id, names, is_alone=is_alone)
        return self

    def _check_reachable(self) -> None:
        """Check that a joining node advertises addresses that other nodes can connect to."""
        own = self.member
        for name, address in (
            ("peer_advertise", own.peer_address),
            ("advertise", own.client_address),
        ):
            if host_of(address) in _ANY_HOST:
                raise ValueError(f"{name} is needed: other nodes cannot connect to {address}")

    @staticmethod
    def _check_address(name: str, address: str) -> None:
        try:
            port_of(address)
        except ConfigInvalid as error:
            raise ValueError(f"{name}: {error}") from error

    @property
    def members(self) -> tuple[PeerAddress, ...]:
        """Founding members of the cluster; only this node if ``peers`` is empty."""
        if self.peers:
            return parse_peers(self.peers, port_of(self.listen))
        return (PeerAddress(1, self.node_name, self.peer_listen, self.listen),)

    @property
    def admitted_names(self) -> tuple[str, ...]:
        """The patterns in `admits`."""
        return tuple(filter(None, (pattern.strip() for pattern in self.admits.split(","))))

    @property
    def join_addresses(self) -> tuple[str, ...]:
        """Addresses of the cluster to join: those in `join`, otherwise those in `peers`."""
        given = tuple(filter(None, (address.strip() for address in self.join.split(","))))
        if given or not self.is_joiner:
            return given
        at_peer_port = bool(self.peer_tls_cert)
        return tuple(
            each.peer_address if at_peer_port else each.client_address for each in self.members
        )

    @property
    def is_joiner(self) -> bool:
        """Whether this node joins a cluster at its first start instead of founding one."""
        if self.join:
            return True
        return self.node_name not in {member.name for member in self.members}

    @property
    def has_host_name(self) -> bool:
        """Whether the name is the host name, and a new node of these settings would be alone."""
        return "node_name" not in self.model_fields_set and not (self.peers or self.join)

    @property
    def member(self) -> PeerAddress:
        """This node as a member; its id is 0 if the settings do not contain it."""
        if not self.is_joiner or self.peers:
            for member in self.members:
                if member.name == self.node_name:
                    return member
        peer_address = self.peer_advertise or self.peer_listen
        return PeerAddress(0, self.node_name, peer_address, self.advertise or self.listen)

    @property
    def concurrent_calls_max(self) -> int:
        """Maximum number of concurrent calls and streams together."""
        return self.calls_max + self.streams_max

    @property
    def client_address(self) -> str:
        """Address that clients are told to call when this node leads."""
        return self.advertise or self.member.client_address


def read_config() -> ServerConfig:
    """Read and check the settings.

    Raises:
        ConfigInvalid: one line that names the first invalid setting.
        SettingsConflict: one line that names the settings that contradict each other.
    """
    path = os.environ.get(CONFIG_VARIABLE)
    if path and not Path(path).is_file():
        raise ConfigInvalid(f"{CONFIG_VARIABLE}: file {path} does not exist")
    try:
        return ServerConfig()
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == _CONFLICT:
            raise SettingsConflict(first["msg"], first["ctx"]["settings"]) from error
        place = ".".join(str(part) for part in first["loc"]) or "settings"
        raise ConfigInvalid(f"{place}: {first['msg'].removeprefix('Value error, ')}") from error
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"{path}: {error}") from error
