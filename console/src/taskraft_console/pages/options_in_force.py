"""The options of a tube in force, and which of them are the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Final

from taskraft import Retry, TubeInfo
from taskraft.cli.output import show_retry
from taskraft.cli.tube_settings import default_retry
from taskraft_console.views.readable import exact_duration

_DEFAULTS: Final[Mapping[str, object]] = {
    "priority_order": "lower_first",
    "ttl_scope": "untaken",
    "ttl_policy": "add_delay",
    "on_ack": "remove",
    "durability": "replicated",
    "subqueue_weights": {},
    "retry": Retry.of(default_retry("").message()),
}
"""Defaults of the options that have none in `TubeOptions`, for tubes without a profile."""


@dataclass(frozen=True, slots=True)
class OptionLine:
    """One option of a tube."""

    name: str
    text: str
    is_default: bool
    """True: the value is the default. Always False in a tube with a profile of another system."""


def option_lines(info: TubeInfo) -> list[OptionLine]:
    """Return all options of a tube."""
    lines = []
    for field in fields(info.options):
        value = getattr(info.options, field.name)
        default = field.default if field.default is not MISSING else _DEFAULTS[field.name]
        is_default = not info.profile and value == default
        name = field.name.removesuffix("_ms")
        lines.append(OptionLine(name, _text(field.name, value), is_default))
    return lines


def _text(name: str, value: object) -> str:
    """Return the value of an option as text."""
    if value is None or value in ("", {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_ms"):
        return exact_duration(value)
    if isinstance(value, Retry):
        return show_retry(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {weight}" for key, weight in sorted(value.items()))
    return str(value)
