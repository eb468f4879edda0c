"""Show the detail of an act of management as facts: fields with readable values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from taskraft_console.views.readable import exact_duration, readable_bytes

_WRAPPERS: Final = ("options", "settings")
"""Names of fields that only hold other fields; the facts leave these names out."""
_PART: Final = re.compile(
    r"""\s*(?:
      (?P<close>\})
    | (?P<message>\w+)\s*\{
    | (?P<name>\w+)(?P<mark>:\s*|=)(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"'{}]+)(?=\s|$)
    )""",
    re.VERBOSE,
)
"""A field of a request: ``name: text`` or ``name { ... }`` in the text format, or ``name=text``."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A field of a request, and its value."""

    name: str
    """Name of the field; empty: the text is a part of the detail that has no known form."""
    text: str


def detail_facts(detail: str) -> list[Fact]:
    """Parse the detail of an act, in the form in which nodes write details, into facts.

    The rest of a detail from the first unknown form is one fact without a name. Nodes cut details
    at 256 characters, so the last value can be incomplete.
    """
    return list(_facts(detail.strip()))


def _facts(detail: str) -> Iterator[Fact]:
    path: list[str] = []
    at = 0
    while at < len(detail):
        part = _PART.match(detail, at)
        if part is None:
            yield Fact("", detail[at:].strip())
            return
        at = part.end()
        if part["close"]:
            del path[-1:]
        elif part["message"]:
            path.append(part["message"])
        else:
            names = [each for each in path if each not in _WRAPPERS]
            name = " ".join((*names, part["name"]))
            yield _fact(name, part["text"], is_typed=part["mark"] != "=")


def _fact(name: str, text: str, *, is_typed: bool) -> Fact:
    """Return a fact with the unit of its value in the text instead of the name.

    ``is_typed`` tells that a text without quotes is a number, a truth value or a choice.
    """
    if text.isdecimal() and "_ms" in name:
        name, text = name.replace("_ms", ""), exact_duration(int(text))
    elif text.isdecimal() and "_bytes" in name:
        name, text = name.replace("_bytes", ""), readable_bytes(int(text))
    elif text.isdecimal() and name.endswith("_percent"):
        name, text = name.removesuffix("_percent"), f"{text} %"
    elif text[0] in "\"'":
        text = text[1:-1] or "none"
    elif is_typed:
        text = {"true": "yes", "false": "no"}.get(text, text.lower())
    return Fact(name.replace("_", " "), text)
