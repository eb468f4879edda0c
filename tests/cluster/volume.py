"""A small file system in memory, which can be full and can grow."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tools.local_node import Node


class NoVolumes(Exception):
    """File systems cannot be mounted here; the message says why."""


class Volume:
    """A tmpfs that is mounted at a folder.

    Raises:
        NoVolumes: it cannot be mounted, for example without the rights of root.
    """

    def __init__(self, place: Path, size_bytes: int) -> None:
        self.place = place
        self.place.mkdir(parents=True)
        if shutil.which("mount") is None:
            raise NoVolumes("there is no mount command")
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoVolumes(f"nothing can be mounted here: {done.stderr.strip()}")

    def grow(self, size_bytes: int) -> None:
        """Give the file system another size."""
        command = ["mount", "-o", f"remount,size={size_bytes}", str(self.place)]
        subprocess.run(command, check=True)

    def unmount(self) -> None:
        """Remove the file system and its files."""
        subprocess.run(["umount", str(self.place)], check=True)

    def hold(self, node: Node) -> Node:
        """Put the data directory of a node that has not been started onto this file system."""
        data = str(self.place / "data")
        node.environment = {**node.environment, "TASKRAFT_DATA_DIR": data}
        return node
