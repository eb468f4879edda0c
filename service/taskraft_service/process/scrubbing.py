"""Connect the scrubber to the parts of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from taskraft_replication.damage import Damage, DamagedPart, DamageListener, is_damage
from taskraft_replication.errors import FormatUnknown, LogDamaged
from taskraft_replication.node.node import Node
from taskraft_replication.storage.checked_file import parse_checked
from taskraft_replication.storage.direct_reader import DirectReader
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.storage.directory import POINTER, STATE_DIRECTORY
from taskraft_service.storage.scrubber import Scrubber
from taskraft_service.storage.state_scrub import UnknownTables, scrub_state

_POINTER_BYTES_MAX: Final = 4096


class DataFiles:
    """Reads files of the data directory from the disk.

    Args:
        data_dir: the data directory.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return at most ``size`` bytes of a file; see ``log_scrub.Read``."""
        file = DirectReader(self._data_dir / name)
        try:
            return file.read(offset, min(size, max(0, file.size - offset)))
        finally:
            file.close()


def build_scrubber(
    config: ServerConfig,
    node: Node,
    machine: QueueMachine,
    unknown: UnknownTables,
    wall_ms: Callable[[], int],
    listener: DamageListener,
) -> Scrubber:
    """Return the scrubber of a node; it is not started."""
    files = DataFiles(config.data_dir)

    def pointer() -> Iterator[int | Damage]:
        """Check the file that names the current database."""
        name = f"{STATE_DIRECTORY}/{POINTER}"
        try:
            raw = files.read(name, 0, _POINTER_BYTES_MAX)
            parse_checked(name, raw)
            yield len(raw)
        except (OSError, LogDamaged, FormatUnknown) as error:
            if isinstance(error, OSError) and not is_damage(error):
                raise
            yield Damage(DamagedPart.STATE, name, 0, "a file with a valid checksum", str(error))

    return Scrubber(
        config.data_dir,
        (
            lambda: node.scrub(files.read),
            pointer,
            lambda: scrub_state(config.data_dir, machine.live_tables, unknown),
        ),
        config.scrub_period_ms,
        wall_ms,
        listener,
        asyncio.get_running_loop().call_soon_threadsafe,
    )
