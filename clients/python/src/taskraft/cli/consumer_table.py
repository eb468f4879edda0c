"""Print waiting consumers, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskraft.cli.output import show_duration, show_instant, write_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from taskraft.v1.tube_service_pb2 import WaitingConsumer

HEADS: Final = ("KIND", "SOURCES", "TYPES", "WANTED", "SESSION", "PRINCIPAL", "SINCE", "WAIT")


def write_consumers(consumers: Iterable[WaitingConsumer]) -> None:
    """Print a table of waiting consumers in their order."""
    rows = [
        (
            each.Kind.Name(each.kind).lower(),
            ",".join(each.sources),
            ",".join(each.types) or "all",
            each.wanted,
            each.session_id or "-",
            each.principal or "-",
            show_instant(each.since_ms),
            show_duration(each.until_ms - each.since_ms) if each.until_ms else "-",
        )
        for each in consumers
    ]
    write_table(HEADS, rows)
