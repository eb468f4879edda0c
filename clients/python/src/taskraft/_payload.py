"""Encode payloads as bytes with a media type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from taskraft._arguments import wrong_type, wrong_value

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
"""A value that JSON can represent."""

Payload: TypeAlias = "bytes | bytearray | memoryview | Json"
"""Bytes are stored unchanged, a str as UTF-8 text, any other value as JSON."""

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
BYTES: Final = ""
"""Media type of payloads that are bytes: none. The option content_type sets another one."""


def encode(payload: Payload) -> tuple[bytes, str]:
    """Return the bytes of a payload and their media type.

    Raises:
        TypeError: JSON cannot represent the value.
        ValueError: the value contains a number that JSON cannot represent, such as NaN, a character
            that UTF-8 cannot encode, such as half of a surrogate pair, or too many levels.
    """
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), BYTES
    if isinstance(payload, str):
        return _utf8(payload, payload), TEXT
    try:
        text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except TypeError as error:
        raise wrong_type(
            "a payload", f"bytes, a string, or a JSON value ({error})", payload
        ) from None
    except (ValueError, RecursionError) as error:
        raise wrong_value(
            "a payload", f"bytes, a string, or a JSON value ({error})", payload
        ) from None
    return _utf8(text, payload), JSON


def _utf8(text: str, payload: Payload) -> bytes:
    """Return a text as UTF-8; an error shows the payload from which the text was made."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise wrong_value("a payload", f"text that UTF-8 can encode ({error})", payload) from None
