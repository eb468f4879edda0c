"""Digests of all files of a directory, to show that nothing was changed."""

import hashlib


def file_digests(place):
    """Return the SHA-256 of each file below a directory, by its path; None for a directory.

    The file ``lock`` of a data directory is left out, because it has the id of the last process.
    """
    return {
        str(path.relative_to(place)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        )
        for path in place.rglob("*")
        if path != place / "lock"
    }
