"""Say that something must never happen, and that it has happened."""

from __future__ import annotations


class Violation(AssertionError):
    """Something that must never happen has happened."""


def demand(holds: bool, message: str) -> None:
    """Raise ``Violation`` unless ``holds``."""
    if not holds:
        raise Violation(message)
