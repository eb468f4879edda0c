"""Let the disk of nodes in this process hang."""

import threading
from contextlib import contextmanager
from pathlib import Path

from taskraft_replication.storage.filesystem import DiskFile


@contextmanager
def hung_disk(monkeypatch, directory=Path("/")):
    """Let each sync of a file below ``directory`` hang until the end of the with block."""
    answers = threading.Event()

    def hanging(operation):
        def hang(file, *arguments):
            if file._path.is_relative_to(directory):
                answers.wait()
            operation(file, *arguments)

        return hang

    with monkeypatch.context() as patch:
        for name in ("sync", "write_through"):
            patch.setattr(DiskFile, name, hanging(getattr(DiskFile, name)))
        try:
            yield
        finally:
            answers.set()
