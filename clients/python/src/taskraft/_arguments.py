"""Read arguments: each that is wrong is refused by its name, what it may be, and what it was.

What only the server knows, such as limits and the names of tubes, it checks itself; this is about
what cannot even be sent.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import TypeAlias

Texts: TypeAlias = "str | Iterable[str]"
"""One text, or several. Without it a single name would be taken for the list of its letters."""


def wrong_type(name: str, expected: str, value: object) -> TypeError:
    """Return what to raise for an argument of a wrong type."""
    return TypeError(f"{name} is {expected}, not {reprlib.repr(value)}")


def wrong_value(name: str, expected: str, value: object) -> ValueError:
    """Return what to raise for an argument of the right type and a wrong value."""
    return ValueError(f"{name} is {expected}, not {reprlib.repr(value)}")


def text(name: str, value: object) -> str:
    """Return a text as it is.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(value, str):
        raise wrong_type(name, "a text", value)
    return value


def texts(name: str, given: object) -> list[str]:
    """Return texts as a list, also if there is only one.

    Raises:
        TypeError: They are none.
    """
    if isinstance(given, str):
        return [given]
    expected = "a text, or several"
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise wrong_type(name, expected, given)
    several = []
    for each in given:
        if not isinstance(each, str):
            raise wrong_type(name, expected, each)
        several.append(each)
    return several


def flag(name: str, value: object) -> bool:
    """Return True or False as it is.

    Raises:
        TypeError: It is neither.
    """
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)
    return value


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """Return a whole number as it is.

    Raises:
        TypeError: It is none.
        ValueError: It is out of range.
    """
    expected = f"a whole number from {least} to {most}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(name, expected, value)
    if not least <= value <= most:
        raise wrong_value(name, expected, value)
    return value


def choice(name: str, value: object, choices: Mapping[str, int]) -> int:
    """Return the number of what was chosen, in small or capital letters.

    Raises:
        TypeError: It is no text.
        ValueError: It is not among the choices.
    """
    expected = f"one of {', '.join(choices)}"
    if not isinstance(value, str):
        raise wrong_type(name, expected, value)
    number = choices.get(value.lower())
    if number is None:
        raise wrong_value(name, expected, value)
    return number


def hundredths(name: str, value: object) -> int:
    """Return a number in hundredths.

    Raises:
        TypeError: It is none.
        ValueError: It is not finite.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(name, "a number", value)
    if not isfinite(value):
        raise wrong_value(name, "a finite number", value)
    return round(value * 100)


def check_known(given: Iterable[str], options: type, refusal: str) -> None:
    """Refuse what is not among the annotated options.

    Args:
        given: names of options.
        options: a class whose annotations are the options.
        refusal: the beginning of the text, for example "put has no option".

    Raises:
        TypeError: Some are unknown; the text names them, and those that are like them.
    """
    known = options.__annotations__.keys()
    unknown = sorted(set(given) - known)
    if not unknown:
        return
    likes = [like for name in unknown for like in get_close_matches(name, known, n=1)]
    hint = f"did you mean {', '.join(likes)}?" if likes else f"there are {', '.join(sorted(known))}"
    raise TypeError(f"{refusal} {', '.join(unknown)}; {hint}")
