"""The labels of a client's sessions: where the process runs, and which client it uses."""

from __future__ import annotations

import os
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING

from taskraft._arguments import text, wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping


def session_labels(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels host, pid, client and version, with the given labels added.

    A given label replaces the label of this name; an empty text removes the label.

    Raises:
        TypeError: the labels are no mapping, or a name or a value is not a string.
    """
    own = {
        "host": socket.gethostname(),
        "pid": str(os.getpid()),
        "client": "taskraft-python",
        "version": version("taskraft"),
    }
    if given is not None and not hasattr(given, "items"):
        raise wrong_type("labels", "a mapping of strings", given)
    added = {text("labels", name): text("labels", value) for name, value in (given or {}).items()}
    return {name: value for name, value in (own | added).items() if value}
