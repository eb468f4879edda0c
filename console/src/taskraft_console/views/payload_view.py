"""Show a payload as a JSON tree, as text or as hexadecimal bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any, Final, Literal

from taskraft_console.views.readable import plain_text
from taskraft_console.views.redaction import Redacted, TubeRedaction

SHOWN_BYTES_MAX: Final = 64 * 1024
"""Maximum number of bytes of a payload on a page; a download has all bytes."""
TREE_NODES_MAX: Final = 500
"""Maximum number of lines of a JSON tree."""
HEX_BYTES_MAX: Final = 4 * 1024
_DEPTH_MAX: Final = 40
_ROW: Final = 16

Form = Literal["tree", "text", "hex", "hidden"]


@dataclass(frozen=True, slots=True)
class TreeLine:
    """One line of a JSON tree."""

    depth: int
    key: str
    """Name or position in the value above; empty at the top."""
    kind: str
    """Kind of the value: "object", "array", "string", "number", "constant" or "redacted"."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadView:
    """A payload in the form in which it is shown."""

    form: Form
    forms: tuple[Form, ...]
    """The forms that the payload has; none: a rule hides the payload."""
    size: int
    """Size in bytes."""
    tree: tuple[TreeLine, ...] = ()
    text: str = ""
    note: str = ""
    """Reason why a part is missing; empty: the payload is complete."""

    @classmethod
    def of(
        cls, payload: bytes, wanted: str = "", redaction: TubeRedaction | None = None
    ) -> PayloadView:
        """Return the view of a payload: as a tree if it is JSON, else as text, else in hex.

        With a redaction of values, a payload is shown as a tree only.
        """
        if redaction is not None and redaction.hides_values:
            return cls._redacted(payload, redaction)
        decoded = _text_of(payload)
        value = _json_of(payload) if decoded is not None else None
        forms: list[Form] = ["hex"]
        if decoded is not None:
            forms.insert(0, "text")
        if value is not None:
            forms.insert(0, "tree")
        form: Form = next((each for each in forms if each == wanted), forms[0])
        tree: tuple[TreeLine, ...] = ()
        text, note = "", ""
        if form == "tree":
            assert value is not None
            tree, note = _tree(value[0])
        else:
            bytes_max = SHOWN_BYTES_MAX if form == "text" else HEX_BYTES_MAX
            if form == "text":
                assert decoded is not None
                text = plain_text(decoded)
            else:
                text = "\n".join(_hex_rows(payload[:bytes_max]))
            if len(payload) > bytes_max:
                note = f"the first {bytes_max} of {len(payload)} bytes"
        return cls(
            form=form,
            forms=tuple(forms),
            size=len(payload),
            tree=tree,
            text=text,
            note=note,
        )

    @classmethod
    def _redacted(cls, payload: bytes, redaction: TubeRedaction) -> PayloadView:
        """Return the view of a payload without the redacted values."""
        value = _json_of(payload)
        try:
            shown = None if value is None else (redaction.redacted(value[0]),)
        except RecursionError:
            shown = None
        if shown is None:
            note = "no part: a rule hides payloads of this tube that are not JSON, or are too large"
            return cls(form="hidden", forms=(), size=len(payload), note=note)
        tree, note = _tree(shown[0])
        return cls(form="tree", forms=("tree",), size=len(payload), tree=tree, note=note)


def _tree(value: object) -> tuple[tuple[TreeLine, ...], str]:
    """Return the lines of a JSON value, and the reason why some lines are missing."""
    lines = tuple(islice(_lines(value, "", 0), TREE_NODES_MAX + 1))
    note = "" if len(lines) <= TREE_NODES_MAX else f"the first {TREE_NODES_MAX} values"
    return lines[:TREE_NODES_MAX], note


def _text_of(payload: bytes) -> str | None:
    """Return the first bytes of a payload as text, or None if the payload is not UTF-8."""
    try:
        return payload[:SHOWN_BYTES_MAX].decode()
    except UnicodeDecodeError as error:
        # The cut at the maximum can split a character.
        if len(payload) > SHOWN_BYTES_MAX and error.start > SHOWN_BYTES_MAX - 4:
            return payload[: error.start].decode()
        return None


def _json_of(payload: bytes) -> tuple[Any] | None:
    """Return a JSON value in a tuple; None if the payload is not JSON, or is too large.

    Numbers keep all their digits: an id of 19 digits must not be rounded.
    """
    if len(payload) > SHOWN_BYTES_MAX or payload[:1] not in b"{[":
        return None
    try:
        return (json.loads(payload, parse_float=Decimal, parse_constant=str),)
    except (ValueError, RecursionError):
        return None


def _lines(value: object, key: str, depth: int) -> Iterator[TreeLine]:
    if isinstance(value, dict) and value and depth < _DEPTH_MAX:
        yield TreeLine(depth, key, "object", f"{len(value)}")
        for name, inner in value.items():
            yield from _lines(inner, str(name), depth + 1)
    elif isinstance(value, list) and value and depth < _DEPTH_MAX:
        yield TreeLine(depth, key, "array", f"{len(value)}")
        for place, inner in enumerate(value):
            yield from _lines(inner, str(place), depth + 1)
    elif isinstance(value, str):
        yield TreeLine(depth, key, "string", plain_text(value, 4_096))
    elif isinstance(value, bool) or value is None:
        yield TreeLine(depth, key, "constant", json.dumps(value))
    elif isinstance(value, Redacted):
        yield TreeLine(depth, key, "redacted", "left out by a rule")
    elif isinstance(value, int | Decimal):
        yield TreeLine(depth, key, "number", str(value))
    else:
        yield TreeLine(depth, key, "constant", "{…}" if value else json.dumps(value))


def _hex_rows(payload: bytes) -> Iterator[str]:
    for start in range(0, len(payload), _ROW):
        row = payload[start : start + _ROW]
        digits = " ".join(f"{each:02x}" for each in row)
        text = "".join(chr(each) if 0x20 <= each < 0x7F else "·" for each in row)
        yield f"{start:06x}  {digits:<47}  {text}"
