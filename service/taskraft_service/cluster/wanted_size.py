"""Read how many nodes the operator wants, from the file of the setting ``replicas_file``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from taskraft_service.config.addresses import ordinal_of

FILE_BYTES_MAX: Final = 64
"""Maximum size of the file, in bytes."""


class WantedSizeInvalid(Exception):
    """The file does not have one number from 1 on; the text names the file, in one line."""


def wanted_size(path: Path) -> int | None:
    """Return the wanted number of nodes, at least 1; None: the file does not exist; blocks.

    Raises:
        WantedSizeInvalid: the file cannot be read, or has another content.
    """
    try:
        # Opening a named pipe would wait for a writer.
        if path.exists() and not path.is_file():
            raise WantedSizeInvalid(f"{path} must be a file with the wanted number of nodes")
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1).decode("latin-1")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WantedSizeInvalid(f"cannot read the wanted number of nodes: {error}") from error
    if len(text) > FILE_BYTES_MAX:
        raise WantedSizeInvalid(f"{path} must have at most {FILE_BYTES_MAX} bytes")
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise WantedSizeInvalid(f"{path} must have one number from 1 on, not {text!r}")
    return int(text)


def excess_size(name: str, path: Path | None) -> int | None:
    """Return the wanted number of nodes if a node is not among them, otherwise None; blocks.

    The nodes with the ordinals below the wanted number are wanted, as in a StatefulSet.

    Args:
        name: name of the node.
        path: file with the wanted number; None: every node is wanted.

    Raises:
        WantedSizeInvalid: the file cannot be read, or has another content.
    """
    ordinal = ordinal_of(name)
    if path is None or ordinal is None:
        return None
    wanted = wanted_size(path)
    return wanted if wanted is not None and ordinal >= wanted else None
