"""Load C libraries of this folder into node processes with LD_PRELOAD."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.local_node import Node


class CompilerMissing(Exception):
    """There is no C compiler, so the library cannot be built."""


def add_library(node: Node, source: Path, folder: Path, settings: Mapping[str, str]) -> None:
    """Build a library into ``folder``, and load it into a node that has not been started yet.

    Libraries that were added before stay, and are called after this one.

    Raises:
        CompilerMissing: the command ``cc`` does not exist.
    """
    library = folder / f"{source.stem}.so"
    if not library.exists():
        compiler = shutil.which("cc")
        if compiler is None:
            raise CompilerMissing("no C compiler: the command cc does not exist")
        folder.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
    loaded = node.environment.get("LD_PRELOAD")
    libraries = f"{library}:{loaded}" if loaded else str(library)
    node.environment = {**node.environment, **settings, "LD_PRELOAD": libraries}
