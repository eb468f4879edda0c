"""Turn what users put into bytes with a media type, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from taskraft._arguments import wrong_type, wrong_value

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
"""What JSON can say."""

Payload: TypeAlias = "bytes | bytearray | memoryview | Json"
"""Bytes are stored as they are, a str as UTF-8 text, everything else as JSON."""

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
BYTES: Final = ""
"""Bytes say nothing about themselves; name their type with the option content_type."""


def encode(payload: Payload) -> tuple[bytes, str]:
    """Return the bytes of a payload and their media type.

    Raises:
        TypeError: JSON cannot say it.
        ValueError: It has a number that JSON does not know, as NaN.
    """
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), BYTES
    if isinstance(payload, str):
        return payload.encode(), TEXT
    try:
        text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except TypeError as error:
        raise wrong_type(
            "a payload", f"bytes, a text, or what JSON can say ({error})", payload
        ) from None
    except ValueError as error:
        raise wrong_value(
            "a payload", f"bytes, a text, or what JSON can say ({error})", payload
        ) from None
    return text.encode(), JSON
