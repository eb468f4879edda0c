"""Compare failures by class and text, without ids, numbers, addresses and quoted parts."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final

TEXT_CHARACTERS_MAX: Final = 512
_VARIABLE: Final = re.compile(
    r"(?P<id>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)"
    r"|(?P<text>'[^'\n]*'|\"[^\"\n]*\")"
    r"|(?P<address>\b\d{1,3}(?:\.\d{1,3}){3}\b)"
    r"|(?P<hex>\b(?:0x)?(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}\b)"
    r"|(?P<n>\d+(?:\.\d+)?)"
)
_SPACES: Final = re.compile(r"\s+")


@lru_cache(4_096)
def normalised(text: str) -> str:
    """Return a text with placeholders for the parts that differ from failure to failure."""
    short = text[:TEXT_CHARACTERS_MAX]
    marked = _VARIABLE.sub(lambda found: f"<{found.lastgroup}>", short)
    return _SPACES.sub(" ", marked).strip()


def fingerprint_of(failure_type: str, text: str) -> str:
    """Return a short name of a cause; failures of the same cause have the same name."""
    content = f"{failure_type}\0{normalised(text)}".encode()
    return blake2b(content, digest_size=6).hexdigest()
