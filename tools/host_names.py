"""Map host names to loopback addresses that can change while programs run, for tests.

A program that is started with ``command`` runs in a mount namespace, in which another file replaces
``/etc/hosts``. The resolvers of gRPC and of the C library read this file. A user namespace allows
the mount without root, where the kernel permits user namespaces.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MOUNT: Final = 'mount --bind "$0" /etc/hosts && exec "$@"'


class HostNames:
    """Host names and their addresses, for the programs that are started with ``command``.

    Args:
        file: the hosts file, which is created.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._addresses = {"localhost": "127.0.0.1"}
        self._write()

    def set(self, name: str, address: str | None) -> None:
        """Change the address of a name for the running programs; None: the name is unknown."""
        if address is None:
            self._addresses.pop(name, None)
        else:
            self._addresses[name] = address
        self._write()

    def _write(self) -> None:
        lines = [f"{address} {name}\n" for name, address in self._addresses.items()]
        # Written in place, because the mount shows this inode.
        self._file.write_text("".join(lines))

    def command(self, *command: str) -> Sequence[str]:
        """Return the command line that runs a program with these names; it keeps its process id."""
        return ("unshare", "-Urm", "sh", "-c", MOUNT, str(self._file), *command)


def missing(file: Path) -> str:
    """Return why this machine cannot replace the hosts file of a program; empty if it can.

    Args:
        file: a hosts file to try with, which is created.
    """
    if shutil.which("unshare") is None:
        return "unshare (util-linux) is missing"
    trial = HostNames(file).command("true")
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""
