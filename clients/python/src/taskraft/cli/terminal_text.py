"""Escape characters that control a terminal."""

from __future__ import annotations

import re
from typing import Final

CONTROLS: Final = re.compile(
    r"[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
"""Characters that JSON and YAML leave unescaped, and that move the cursor, hide or reorder text on
a terminal: DEL, C1 controls, separators of lines, and formatting characters of Unicode."""
_TEXT_CONTROLS: Final = re.compile(rf"[\x00-\x1f]|{CONTROLS.pattern}")


def escaped(found: re.Match[str]) -> str:
    """Return the JSON escape of a matched character."""
    return f"\\u{ord(found[0]):04x}"


def terminal_text(text: str) -> str:
    """Return one line for people in which control characters are escaped as in JSON."""
    return _TEXT_CONTROLS.sub(escaped, text)
