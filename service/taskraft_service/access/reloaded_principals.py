"""Hold the principals in force, and take the next ones when their file changes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from taskraft_replication.tls.watched_files import WatchedFiles
from taskraft_service.access.principals import AccessFileInvalid, Principals, read_principals

log: Final = structlog.get_logger(__name__)


class ReloadedPrincipals:
    """The principals in force.

    Args:
        path: the file; must be readable and well-formed now.

    Raises:
        AccessInvalid: it is not.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = WatchedFiles((path,))
        self.principals: Principals = read_principals(path)
        self.version = 1
        """Grows with every reading of the file, so that streams know when to look again."""

    def refresh(self, *, always: bool = False) -> None:
        """Take over the file if it has changed; one that cannot be used changes nothing.

        Rights that stay although they should go are told of as an error, not repaired: without
        any principals nobody could be let in.
        """
        if not self._files.changed() and not always:
            return
        try:
            self.principals = read_principals(self._path)
        except AccessFileInvalid as error:
            log.error("the rights in force stay: the file cannot be used", reason=str(error))  # noqa: TRY400 - one line, no traceback
            return
        self.version += 1
        log.info("new rights are in force", principals=len(self.principals))
