"""Define the error of a broken invariant."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant was broken; the text describes how."""


def demand(holds: bool, message: str) -> None:
    """Raise ``Violation`` unless ``holds``."""
    if not holds:
        raise Violation(message)
