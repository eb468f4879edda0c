"""Print one tube with its options and counts, for people."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from taskraft.cli.output import show_duration, show_instant, show_retry, to_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskraft import TubeInfo, TubeStatistics


def value_of(tube: TubeInfo, counts: TubeStatistics) -> dict[str, Any]:
    """Return the JSON form of a tube with its counts in the field "statistics"."""
    return {**to_value(tube.message), "statistics": to_value(counts.message)}


def print_details(tube: TubeInfo, counts: TubeStatistics, now_ms: int) -> None:
    """Print the options of a tube and the number of its tasks by state."""
    for name, value in _attributes(tube, counts, now_ms):
        click.echo(f"{name:<26} {value}")


def _attributes(tube: TubeInfo, counts: TubeStatistics, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "name", tube.name
    yield "kind", tube.kind + (f", driver {tube.driver}" if tube.driver else "")
    yield "created", show_instant(tube.created_ms)
    if tube.profile:
        yield "profile", tube.profile
    if tube.quarantined_at:
        yield "quarantine", f"since log index {tube.quarantined_at}"
    tasks = counts.tasks
    for state in fields(tasks):
        yield f"{state.name} tasks", str(getattr(tasks, state.name))
    oldest = counts.oldest_ready_ms
    yield "oldest READY task", show_duration(max(now_ms - oldest, 0)) if oldest else "-"
    yield "payload bytes", str(counts.payload_bytes)
    yield "waiting consumers", str(counts.waiting)
    for option in fields(tube.options):
        yield (
            option.name.removesuffix("_ms"),
            _option(option.name, getattr(tube.options, option.name)),
        )


def _option(name: str, value: Any) -> str:  # noqa: ANN401 - options have many types
    if name == "retry":
        return show_retry(value)
    if value is None:
        return "-"
    if name.endswith("_ms"):
        return show_duration(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if value not in ("", {}) else "-"
