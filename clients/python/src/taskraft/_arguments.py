"""Check arguments before they are sent; an error names the argument and its allowed values.

The server checks everything that only the server knows, such as limits and tube names. These
functions check values that cannot be encoded into a request.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Final, TypeAlias

Texts: TypeAlias = "str | Iterable[str]"
"""One string or several. Without this type, a single name would be read as a list of characters."""
ENCODABLE: Final = "a string that UTF-8 can encode"
"""The text of an error for a string that no message can hold."""


def wrong_type(name: str, expected: str, value: object) -> TypeError:
    """Return the exception for an argument of a wrong type."""
    return TypeError(f"{name} must be {expected}, not {reprlib.repr(value)}")


def wrong_value(name: str, expected: str, value: object) -> ValueError:
    """Return the exception for an argument of the right type and a wrong value."""
    return ValueError(f"{name} must be {expected}, not {reprlib.repr(value)}")


def text(name: str, value: object) -> str:
    """Return a string unchanged.

    Raises:
        TypeError: the value is not a string.
        ValueError: UTF-8 cannot encode the string, such as half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise wrong_type(name, "a string", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise wrong_value(name, ENCODABLE, value) from None
    return value


def texts(name: str, given: object) -> list[str]:
    """Return one or several strings as a list.

    Raises:
        TypeError: the value is not a string or an iterable of strings.
        ValueError: UTF-8 cannot encode a string.
    """
    if isinstance(given, str):
        return [text(name, given)]
    expected = "a string or several strings"
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise wrong_type(name, expected, given)
    several = []
    for each in given:
        if not isinstance(each, str):
            raise wrong_type(name, expected, each)
        several.append(text(name, each))
    return several


def flag(name: str, value: object) -> bool:
    """Return a bool unchanged.

    Raises:
        TypeError: the value is not a bool.
    """
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)
    return value


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """Return an integer unchanged.

    Raises:
        TypeError: the value is not an integer.
        ValueError: the value is not between `least` and `most`.
    """
    expected = f"a whole number from {least} to {most}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(name, expected, value)
    if not least <= value <= most:
        raise wrong_value(name, expected, value)
    return value


def choice(name: str, value: object, choices: Mapping[str, int]) -> int:
    """Return the number of a choice; upper and lower case are equal.

    Raises:
        TypeError: the value is not a string.
        ValueError: the value is not one of the choices.
    """
    expected = f"one of {', '.join(choices)}"
    if not isinstance(value, str):
        raise wrong_type(name, expected, value)
    number = choices.get(value.lower())
    if number is None:
        raise wrong_value(name, expected, value)
    return number


def hundredths(name: str, value: object) -> int:
    """Return a number in hundredths, rounded.

    Raises:
        TypeError: the value is not a number.
        ValueError: the value is not finite.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(name, "a number", value)
    if not isfinite(value):
        raise wrong_value(name, "a finite number", value)
    return round(value * 100)


def check_known(given: Iterable[str], options: type, refusal: str) -> None:
    """Check that all given names are options.

    Args:
        given: names of options.
        options: class whose annotations are the options.
        refusal: start of the error text, for example "put has no option".

    Raises:
        TypeError: a name is not an option; the text names it and similar options.
    """
    known = options.__annotations__.keys()
    unknown = sorted(set(given) - known)
    if not unknown:
        return
    similar = [match for name in unknown for match in get_close_matches(name, known, n=1)]
    hint = (
        f"did you mean {', '.join(similar)}?"
        if similar
        else f"the options are {', '.join(sorted(known))}"
    )
    raise TypeError(f"{refusal} {', '.join(unknown)}; {hint}")
