"""Print messages as a table or as JSON."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from google.protobuf import json_format

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from google.protobuf.message import Message

PIPE_COLUMNS = 10_000
"""Table width if the output is not a terminal, so that no cell is cut off."""


def to_value(message: Message) -> dict[str, object]:
    """Return the JSON form of a message, with the API's field names and with zero values."""
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def to_json(message: Message) -> str:
    """Return a message as one line of JSON."""
    return json.dumps(to_value(message), ensure_ascii=False)


def write(messages: Sequence[Message], output: str, only: Collection[str] | None = None) -> bool:
    """Print messages as JSON if `output` asks for it; return whether it did.

    Args:
        messages: messages to print.
        output: the format.
        only: known fields; other fields are left out instead of printed as zeros.
    """
    values = [
        {name: value for name, value in to_value(message).items() if only is None or name in only}
        for message in messages
    ]
    if output == "json":
        click.echo(json.dumps(values, ensure_ascii=False, indent=2))
    elif output == "jsonl":
        for value in values:
            click.echo(json.dumps(value, ensure_ascii=False))
    return output != "table"


def write_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table without lines; numbers are right-aligned."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    cells = [list(row) for row in rows]
    for position, name in enumerate(header):
        is_number = bool(cells) and all(isinstance(row[position], int) for row in cells)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(str(cell)) for cell in row))
    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    console = Console(width=PIPE_COLUMNS, highlight=False)
    with console.capture() as written:
        console.print(table)
    for line in written.get().splitlines():
        click.echo(line.rstrip())


def show_payload(payload: bytes, characters_max: int | None = None) -> str:
    """Return a payload for people: text unchanged, other bytes in hexadecimal."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = payload.hex()
    text = "".join(each if each.isprintable() else " " for each in text)
    if characters_max is not None and len(text) > characters_max:
        return text[: characters_max - 1] + "…"
    return text


def show_duration(duration_ms: int) -> str:
    """Return a duration for people, with at most two units."""
    if duration_ms < 1_000:
        return f"{duration_ms}ms"
    seconds = duration_ms // 1_000
    for size, unit, smaller, smaller_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size}{unit}" + (f"{rest}{smaller_unit}" if rest else "")
    return f"{seconds}s"


def show_instant(at_ms: int) -> str:
    """Return a time in UTC for people; "-" for 0."""
    if not at_ms:
        return "-"
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
