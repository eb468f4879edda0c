"""Hold the current principals, and reload the access file when it changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import structlog

from taskraft_replication.tls.private_files import exposure_of
from taskraft_replication.tls.watched_files import WatchedFiles
from taskraft_service.access.principals import AccessFileInvalid, Principals, read_principals

log: Final = structlog.get_logger(__name__)


class ReloadedPrincipals:
    """The principals in force.

    Args:
        path: the access file.

    Raises:
        AccessFileInvalid: the access file cannot be read or is malformed, or other users have
            access to the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = WatchedFiles((path,))
        self.principals: Principals = read_principals(path)
        if exposure := exposure_of(path):
            raise AccessFileInvalid(exposure)
        self.version = 1
        """Grows with every reload, so that calls in progress know when to authorize again."""
        self._listeners: list[Callable[[Collection[str]], None]] = []

    def listen(self, changed: Callable[[Collection[str]], None]) -> None:
        """Call ``changed`` after each reload with the principals that are gone or different."""
        self._listeners.append(changed)

    def refresh(self, *, always: bool = False) -> None:
        """Reload the access file if it has changed; an invalid file is logged and ignored.

        An invalid file keeps the previous principals in force, because without any principals no
        caller could connect.

        Args:
            always: reload even if the file looks unchanged.
        """
        if not self._files.changed() and not always:
            return
        try:
            before, self.principals = self.principals, read_principals(self._path)
        except AccessFileInvalid as error:
            log.error(  # noqa: TRY400 - one line, no traceback
                "the access file is invalid; the previous principals stay in force",
                reason=str(error),
            )
            return
        self.version += 1
        if exposure := exposure_of(self._path):
            # The content is used: it may withdraw a principal.
            log.error("the next start refuses the access file", reason=exposure)
        log.info("the access file was reloaded", principals=len(self.principals))
        if changed := before.changed_in(self.principals):
            for listener in self._listeners:
                listener(changed)
