"""List the relations between the settings of a node, each once.

A node checks the relations when it starts, and docs/configuration.md lists them. ``ServerConfig``
has the bounds of single settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from taskraft_replication.core.config import UNCOMMITTED_BYTES_MAX
from taskraft_service.config.addresses import ConfigInvalid

ELECTION_HEARTBEATS_MIN: Final = 2
"""Minimum election timeout in heartbeats; with fewer, one lost heartbeat would start an
election."""
DISK_STALL_TICKS_MIN: Final = 2
"""Minimum of ``disk_stall_ms`` in ticks; the time is measured with an error of one tick."""
DISK_HANG_STALLS_MIN: Final = 4
"""Minimum of ``disk_hang_ms`` as a multiple of ``disk_stall_ms``."""
FEED_PARTITION_BYTES_MIN: Final = 64 * 1024
"""Minimum size of one partition of the change feed in bytes: some hundred events."""


class SettingsConflict(ConfigInvalid):
    """Settings contradict each other or a fixed limit; ``settings`` lists the names."""

    def __init__(self, text: str, settings: tuple[str, ...]) -> None:
        super().__init__(text)
        self.settings = settings


@dataclass(slots=True, frozen=True)
class Amount:
    """One side of a relation: the product of ``factor`` and the settings, or a sum of settings."""

    settings: tuple[str, ...] = ()
    factor: int = 1
    name: str = ""
    """Name of ``factor`` if it is a fixed limit."""
    is_sum: bool = False

    def __str__(self) -> str:
        """Return the amount as a formula of setting names."""
        factor = self.name or (str(self.factor) if self.factor != 1 else "")
        parts = [factor, *self.settings] if factor else [*self.settings]
        return (" + " if self.is_sum else " x ").join(parts)

    def of(self, config: object) -> int:
        """Return the value of the amount for the settings ``config``."""
        values = [int(getattr(config, name)) for name in self.settings]
        return sum(values) if self.is_sum else prod(values, start=self.factor)


@dataclass(slots=True, frozen=True)
class SettingRelation:
    """``smaller`` must not exceed ``larger``."""

    smaller: Amount
    larger: Amount
    reason: str
    """Reason for the relation, in one sentence."""
    unless_zero: str = ""
    """Setting that switches the relation off with the value 0."""

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings in the relation."""
        return (*self.smaller.settings, *self.larger.settings)

    @property
    def rule(self) -> str:
        """The relation in words, with the names of the settings."""
        unless = f", unless {self.unless_zero} is 0" if self.unless_zero else ""
        return f"{self.smaller} must be at most {self.larger}{unless}"

    def conflict(self, config: object) -> SettingsConflict | None:
        """Return the error if the settings violate the relation, otherwise None."""
        smaller, larger = self.smaller.of(config), self.larger.of(config)
        is_off = bool(self.unless_zero) and not getattr(config, self.unless_zero)
        if is_off or smaller <= larger:
            return None
        return SettingsConflict(
            f"{self.rule}, but {smaller} is more than {larger}: {self.reason}", self.settings
        )


def _setting(*names: str, times: int = 1) -> Amount:
    return Amount(names, times)


RELATIONS: Final[tuple[SettingRelation, ...]] = (
    SettingRelation(
        _setting("tick_ms"),
        _setting("heartbeat_ms"),
        "the leader sends at most one heartbeat per tick",
    ),
    SettingRelation(
        _setting("heartbeat_ms", times=ELECTION_HEARTBEATS_MIN),
        _setting("election_timeout_ms"),
        "otherwise one lost heartbeat would start an election",
    ),
    SettingRelation(
        _setting("tick_ms", times=DISK_STALL_TICKS_MIN),
        _setting("disk_stall_ms"),
        "the wait for the disk is measured with an error of one tick",
    ),
    SettingRelation(
        _setting("disk_stall_ms", times=DISK_HANG_STALLS_MIN),
        _setting("disk_hang_ms"),
        "a leader needs time to transfer its leadership before it stops",
    ),
    SettingRelation(
        _setting("entry_commands_max"),
        _setting("pending_commands_max"),
        "the commands of one entry are pending together until the entry is built",
    ),
    SettingRelation(
        _setting("entry_bytes_max", "entries_in_flight_max"),
        Amount((), UNCOMMITTED_BYTES_MAX, f"{UNCOMMITTED_BYTES_MAX} (uncommitted bytes of Raft)"),
        "otherwise the Raft core would drop the last of the entries in flight",
    ),
    SettingRelation(
        _setting("payload_bytes_max"),
        _setting("temporary_bytes_max"),
        "otherwise no temporary tube could hold the largest payload",
        unless_zero="temporary_bytes_max",
    ),
    SettingRelation(
        _setting("feed_partitions", times=FEED_PARTITION_BYTES_MIN),
        _setting("feed_bytes_max"),
        "otherwise a partition of the change feed would lose its events at once",
    ),
    SettingRelation(
        _setting("log_segment_bytes"),
        _setting("log_flush_bytes"),
        "only whole segments of the log are deleted after a flush",
    ),
    SettingRelation(
        Amount(("log_segment_bytes", "write_buffer_bytes"), is_sum=True),
        _setting("disk_low_bytes"),
        "when the node begins to refuse puts, the disk must still have space for a segment of the "
        "log and a write buffer of the state",
        unless_zero="disk_low_bytes",
    ),
)
"""All relations between settings. A test compares the table with the settings that are amounts."""


def check_relations(config: object) -> None:
    """Check all relations.

    Raises:
        SettingsConflict: names the settings of the first relation that does not hold.
    """
    for relation in RELATIONS:
        conflict = relation.conflict(config)
        if conflict is not None:
            raise conflict
