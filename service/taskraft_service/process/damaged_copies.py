"""Release the damaged data that this node has set aside, once the node needs the data no more."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import structlog

from taskraft_service.storage.directory import release_copies

log: Final = structlog.get_logger(__name__)


class DamagedCopies:
    """The copies of damaged data of a node.

    A damaged state may be the best copy that is left. The node therefore keeps the copy until its
    new state has been compared with the states of the other members. After that, the copy only
    serves diagnosis, and the node deletes the copy when it sets another one aside.

    Args:
        data_dir: the data directory.
        names: directories in ``data_dir`` of which there may be copies.
    """

    def __init__(self, data_dir: Path, names: tuple[str, ...]) -> None:
        self._paths = [data_dir / name for name in names]
        self._is_proven = False

    def state_agreed(self) -> None:
        """Release the copies, because the state of this node is that of a majority."""
        if not self._is_proven:
            self._is_proven = True
            threading.Thread(target=self._release, name="damaged-copies", daemon=True).start()

    def _release(self) -> None:
        for path in self._paths:
            try:
                for copy in release_copies(path):
                    log.info("a majority has the new state; the old copy may go", copy=str(copy))
            except OSError as error:
                log.warning("damaged copies cannot be released", of=path.name, reason=str(error))
