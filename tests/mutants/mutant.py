"""Define a mutant: one place of the code, changed so that a test must fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

TABLE: Final = Path(__file__).parent / "table"

_SEEDS: Final = tuple(
    f"tests/sim/test_seeds.py::test_fixed_seeds_break_no_invariant_and_the_group_recovers[{first}]"
    for first in range(0, 200, 10)
)
"""Fixed seeds of the simulation, so that the verdict on a mutant repeats."""

FEW_SEEDS: Final = _SEEDS[:5]
"""Seeds that run first, because they detect almost every mutant that any seed detects."""

REST: Final = _SEEDS[5:]
"""Seeds that run last, for mutants that nothing else has killed."""

SUITES: Final[Mapping[str, Sequence[str]]] = {
    "core": (
        "tests/replication/core",
        "tests/raft_traces",
        "tests/sim/test_known_failures.py",
        "tests/replication/driver",
        "tests/sim/test_clients.py",
        *FEW_SEEDS,
    ),
    "driver": (
        "tests/replication/driver",
        "tests/replication/storage/test_log_writer.py",
        "tests/replication/snapshots",
        "tests/sim/test_snapshot_transfers.py",
        "tests/sim/test_known_failures.py",
        "tests/sim/test_slow_disks.py",
        "tests/sim/test_clients.py",
        "tests/sim/test_news.py",
        "tests/replication/storage/test_crash_points.py",
        "tests/replication/storage/test_stored_commit.py",
        *FEW_SEEDS,
        "tests/replication/node/test_node.py",
        "tests/replication/node/test_membership.py",
    ),
    "storage": (
        "tests/replication/storage/test_group_storage.py",
        "tests/replication/storage/test_recovery.py",
        "tests/replication/storage/test_stored_commit.py",
        "tests/replication/storage/test_log_writer.py",
        "tests/replication/storage/test_recent.py",
        "tests/replication/storage/test_stored_log.py",
        "tests/replication/storage/test_removed_member.py",
        "tests/replication/storage/test_membership_history.py",
        "tests/replication/storage/test_failpoints.py",
        "tests/replication/storage/test_filesystem.py",
        "tests/replication/storage/test_snapshot_inbox.py",
        "tests/replication/storage/test_crash_points.py",
        "tests/replication/storage/test_failpoints_crossed.py",
        "tests/sim/test_known_failures.py",
        "tests/sim/test_state_damage.py",
        *FEW_SEEDS,
    ),
    "membership": (
        "tests/replication/membership",
        "tests/replication/core/test_reconfiguration.py",
        "tests/replication/storage/test_removed_member.py",
        "tests/replication/peers",
        "tests/replication/node/test_membership.py",
    ),
    "founding": ("tests/sim/test_founding.py", "tests/replication/node/test_bootstrap.py"),
    "service": (
        "tests/service/machine/test_state_machine.py",
        "tests/service/machine",
        "tests/service/api/rpc",
    ),
    "entries": ("tests/service/entries", "tests/service/machine"),
    "command_codecs": (
        "tests/service/command_codecs",
        "tests/service/entries",
        "tests/service/api/tasks/test_policies.py",
        "tests/service/api/cluster/test_settings.py",
        "tests/service/api/test_violations.py",
        "tests/service/api/tasks/test_batch.py",
        "tests/service/api/tasks/test_bulk_methods.py",
        "tests/service/api",
    ),
    "leader": (
        "tests/service/leader",
        "tests/service/api/test_schedules.py",
        "tests/service/api/tubes/test_statistics.py",
        "tests/service/api/tasks/test_waiting_take.py",
        "tests/service/api/streams/test_subscribe.py",
        "tests/service/api",
    ),
    "api": (
        "tests/service/api/test_violations.py",
        "tests/service/api/test_bad_input.py",
        "tests/service/api/test_server.py",
        "tests/service/api",
        "tests/service/access",
    ),
    "state": (
        "tests/service/storage",
        "tests/service/machine/test_state_machine.py",
    ),
    "transport": (
        "tests/replication/peers/test_send_queue.py",
        "tests/replication/peers/test_send_batcher.py",
        "tests/sim/test_delays.py",
        "tests/replication/peers",
        "tests/replication/snapshots",
        "tests/replication/node/test_node.py",
        "tests/replication/node/test_membership.py",
    ),
    "node": (
        "tests/replication/node/test_node.py",
        "tests/replication/node/test_membership.py",
        "tests/replication/node/test_status.py",
        "tests/replication/node/test_replacement.py",
        "tests/replication/node/test_hung_disk.py",
    ),
    "clock": (
        "tests/service/clock",
        "tests/service/leader/test_clock_keeper.py",
        "tests/service/queue/test_scenarios.py",
    ),
    "digests": ("tests/service/queue/persistence/test_record_digest.py",),
    "versions": (
        "tests/service/queue/state/test_cluster_version.py",
        "tests/service/queue/persistence/test_upgrade_chain.py",
        "tests/service/cluster/test_member_versions.py",
        "tests/service/leader/test_version_keeper.py",
        "tests/service/machine/test_version_raise.py",
        "tests/service/machine/test_state_machine.py",
    ),
    "scrub": (
        "tests/service/storage/test_scrubber.py",
        "tests/service/process/test_damage_response.py",
        "tests/service/storage/test_table_check.py",
        "tests/replication/storage/test_log_scrub.py",
        "tests/service/process/test_scrub_live.py",
    ),
    "queue": (
        "tests/service/queue/test_scenarios.py",
        "tests/service/queue/entities/test_life_cycle.py",
        "tests/service/queue/store/test_idempotency.py",
        "tests/service/queue/test_removals.py",
        "tests/service/queue/entities",
        "tests/service/queue/state",
        "tests/service/queue",
        "tests/service/machine/test_state_machine.py",
    ),
}
"""Tests of each suite, in the order in which they run, up to the first failure."""


class Changed(Protocol):
    """One changed file, from the table or generated."""

    @property
    def name(self) -> str:
        """The name in reports."""

    @property
    def file(self) -> str:
        """Path of the changed file."""

    @property
    def breaks(self) -> str:
        """The rule that the change breaks."""

    @property
    def suite(self) -> str:
        """Name of the test suite that must detect the change."""

    def changed(self, text: str) -> str:
        """Return the text of the file with the change."""


class TableBroken(Exception):
    """The table is not valid; the text says where."""


@dataclass(slots=True, frozen=True)
class Mutant:
    """One change: the lines ``old``, which must occur exactly once in ``file``, become ``new``."""

    name: str
    file: str
    breaks: str
    """The rule that the mutant breaks."""
    old: str
    new: str
    suite: str

    def changed(self, text: str) -> str:
        """Return the file's ``text`` with the change.

        Raises:
            TableBroken: the old lines do not occur exactly once.
        """
        found = text.count(self.old)
        if found != 1:
            raise TableBroken(f"{self.name}: its old lines stand {found} times in {self.file}")
        return text.replace(self.old, self.new)


def read_table(folder: Path = TABLE) -> list[Mutant]:
    """Return all mutants of the table.

    Raises:
        TableBroken: a file of the table is malformed.
    """
    mutants = [each for path in sorted(folder.glob("*.txt")) for each in _read_file(path)]
    names = [each.name for each in mutants]
    double = {name for name in names if names.count(name) > 1}
    if double:
        raise TableBroken(f"two mutants of the same name: {', '.join(sorted(double))}")
    return mutants


def _read_file(path: Path) -> Iterator[Mutant]:
    """Return the mutants of a file: a comment, the suite, then mutants between empty lines."""
    head, *blocks = path.read_text().rstrip("\n").split("\n\n[")
    suite = head.splitlines()[-1].removeprefix("suite: ")
    if suite not in SUITES:
        raise TableBroken(f"{path.name}: there is no suite {suite}")
    for block in blocks:
        title, *lines = block.split("\n")
        name, _, file = title.partition("] ")
        old = [line[1:] for line in lines if line.startswith("-")]
        new = [line[1:] for line in lines if line.startswith("+")]
        breaks = " ".join(line for line in lines if line[:1] not in {"-", "+"})
        if not (file and old and breaks):
            raise TableBroken(f"{path.name}: {name} lacks its file, old lines or reason")
        yield Mutant(name, file, breaks, _joined(old), _joined(new), suite)


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
