"""Read options as people give them: unknown names are told, one text stands for a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Texts: TypeAlias = "str | Iterable[str]"
"""One text, or several. Without it a single name would be taken for the list of its letters."""


def texts(given: Texts) -> list[str]:
    """Return texts as a list, also if there is only one."""
    return [given] if isinstance(given, str) else list(given)


def check_known(given: Iterable[str], options: type, refusal: str) -> None:
    """Refuse what is not among the annotated options.

    Args:
        given: names of options.
        options: a class whose annotations are the options.
        refusal: the beginning of the text, for example "put has no option".

    Raises:
        TypeError: Some are unknown; the text names them.
    """
    unknown = sorted(set(given) - options.__annotations__.keys())
    if unknown:
        raise TypeError(f"{refusal} {', '.join(unknown)}")
