"""Read how many nodes the operator wants, from the file of the setting ``replicas_file``."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from taskraft_service.config.addresses import ordinal_of

FILE_BYTES_MAX: Final = 64
"""Maximum size of the file, in bytes."""


class WantedSizeInvalid(Exception):
    """The file does not have one number from 1 on; the text names the file, in one line."""


class ReplicaSettings(Protocol):
    """The settings that say whether the operator still wants a node; see ``ServerConfig``."""

    @property
    def node_name(self) -> str:
        """Name of the node."""

    @property
    def replicas_file(self) -> Path | None:
        """File with the wanted number of nodes."""


def wanted_size(path: Path) -> int | None:
    """Return the wanted number of nodes, at least 1; None: the file does not exist; blocks.

    Raises:
        WantedSizeInvalid: the file cannot be read, or has another content.
    """
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX).decode("latin-1").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WantedSizeInvalid(f"cannot read the wanted number of nodes: {error}") from error
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise WantedSizeInvalid(f"{path} must have one number from 1 on, not {text!r}")
    return int(text)


def excess_size(settings: ReplicaSettings) -> int | None:
    """Return the wanted number of nodes if the node is not among them, otherwise None; blocks.

    The nodes with the ordinals below the wanted number are wanted, as in a StatefulSet.

    Raises:
        WantedSizeInvalid: the file cannot be read, or has another content.
    """
    ordinal = ordinal_of(settings.node_name)
    if settings.replicas_file is None or ordinal is None:
        return None
    wanted = wanted_size(settings.replicas_file)
    return wanted if wanted is not None and ordinal >= wanted else None
