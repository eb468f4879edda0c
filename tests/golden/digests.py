"""The list of digests of the golden files."""

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent
DIGESTS = FOLDER / "DIGESTS"


def digest_of(path):
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def listed(text):
    """Return the digests in a list by the name of the file."""
    return {line.split("  ")[1]: line.split("  ")[0] for line in text.splitlines()}


def files():
    """Return the names of all golden files."""
    return {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.json")}
