"""Print messages as a table or as JSON."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from taskraft.cli.output_shape import FIELD, TEMPLATE
from taskraft.cli.terminal_text import CONTROLS, escaped, terminal_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from google.protobuf.message import Message

    from taskraft import Retry, Task

TABLES: Final = ("table", "wide")
"""Formats of which the caller prints a table."""
PIPE_COLUMNS = 10_000
"""Table width if the output is not a terminal, so that no cell is cut off."""

STRING_FIELDS: Final = frozenset(
    (
        # Ids of tasks, lease tokens and revisions.
        *(
            "id",
            "ids",
            "task_id",
            "replaced_id",
            "task_ids",
            "last_task_id",
            "after_id",
            "continue_after_id",
            "first_id",
            "last_id",
            "through_id",
        ),
        *("token", "tokens", "cancel_tokens", "revision", "changed_since_revision"),
        # Sequence numbers of events, and positions in the log.
        *("seq", "from_seq", "to_seq", "low_seq", "high_seq", "next_seq"),
        *("index", "first_index", "last_index", "applied_index", "commit_index", "durable_index"),
        *("match_index", "term", "quarantined_at"),
        # Priorities: an application may use nanoseconds since 1970, which exceed 2^53.
        *("priority", "priority_min", "priority_max", "priority_bound"),
        # Hashes of 64 bits.
        "fingerprint",
    )
)
"""64-bit fields that are strings in JSON, because many JSON parsers round integers above 2^53.

Other 64-bit fields are counts, sizes in bytes and times in ms. They are numbers in JSON.
"""
_BITS_64: Final = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)


def to_value(message: Message) -> dict[str, Any]:
    """Return the JSON form of a message, with the API's field names and with zero values."""
    value = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _with_numbers(value, message.DESCRIPTOR.fields_by_name)


def _with_numbers(value: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON form of a message with numbers; `fields` has the descriptors by name."""
    return {
        name: content if name in STRING_FIELDS else _field_value(content, fields[name])
        for name, content in value.items()
    }


def _field_value(content: Any, field: FieldDescriptor) -> Any:  # noqa: ANN401 - any JSON value
    kind = field.message_type
    if isinstance(content, list):
        return [_field_value(each, field) for each in content]
    if kind is not None and kind.GetOptions().map_entry:
        values = kind.fields_by_name["value"]
        return {key: _field_value(each, values) for key, each in content.items()}
    if isinstance(content, dict) and kind is not None:
        return _with_numbers(content, kind.fields_by_name)
    return int(content) if field.cpp_type in _BITS_64 else content


def json_text(value: Any, *, indent: int | None = None) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as JSON in which no character controls a terminal.

    JSON reads the escaped characters back unchanged.
    """
    return CONTROLS.sub(escaped, json.dumps(value, ensure_ascii=False, indent=indent))


def write_values(values: Sequence[Mapping[str, Any]], output: str) -> bool:
    """Print JSON values in the format `output`; return False for a table, which the caller prints.

    A field of a template is empty if a value does not have it: `output_option` checks templates.
    """
    if output in TABLES:
        return False
    if output == "json":
        click.echo(json_text(values, indent=2))
    elif output == "yaml":
        click.echo(yaml_text([*values]), nl=False)
    else:
        for line in [_line_of(value, output) for value in values]:
            if line is not None:
                click.echo(line)
    return True


def yaml_text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a JSON value as YAML, in the order of its fields."""
    import yaml

    text: str = yaml.dump(value, Dumper=_yaml_dumper(), sort_keys=False, allow_unicode=True)
    return text


def _yaml_dumper() -> type:
    """Return a YAML dumper that quotes texts with control characters, in which they are escaped."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Escapes the characters of ``CONTROLS``."""

        def analyze_scalar(self, scalar: str) -> Any:  # noqa: ANN401 - PyYAML has no types
            analysis = super().analyze_scalar(scalar)
            if CONTROLS.search(scalar):
                analysis.allow_block_plain = analysis.allow_flow_plain = False
                analysis.allow_single_quoted = analysis.allow_block = False
            return analysis

        def write_double_quoted(
            self,
            text: str,
            split: bool = True,  # noqa: FBT001, FBT002 - the parameters are those of PyYAML
        ) -> None:
            """Write a quoted text; without ``allow_unicode`` PyYAML escapes all of the text."""
            before, self.allow_unicode = self.allow_unicode, not CONTROLS.search(text)
            super().write_double_quoted(text, split)
            self.allow_unicode = before

    return Dumper


def _line_of(value: Mapping[str, Any], output: str) -> str | None:
    """Return the line of one value; None for a value without a name."""
    if output == "jsonl":
        return json_text(value)
    if output == "name":
        return _name_of(value)
    template = output.removeprefix(TEMPLATE).replace("\\t", "\t").replace("\\n", "\n")
    return FIELD.sub(lambda found: _text_at(value, found[1]), template)


def _name_of(value: Mapping[str, Any]) -> str | None:
    """Return the name of a value: tube/id of a task, else its name; None for mere counts."""
    if "tube" in value and ("id" in value or "task_id" in value):
        return f"{value['tube']}/{value.get('id') or value.get('task_id')}"
    names = (value.get(key) for key in ("name", "tube", "session_id", "reason", "node"))
    return next((str(name) for name in names if name), None)


def _text_at(value: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
    """Return the text at a path like "options.ttr_ms", in one line; list elements by number."""
    for name in path.split("."):
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (LookupError, TypeError, ValueError):
            return ""  # a field that is not set, which JSON leaves out
    return terminal_text(value) if isinstance(value, str) else json_text(value)


def write(messages: Sequence[Message], output: str, only: Collection[str] | None = None) -> bool:
    """Print messages in the format `output`; return False for a table, which the caller prints.

    Args:
        messages: messages to print.
        output: the format.
        only: known fields; other fields are left out instead of printed as zeros.
    """
    values = [
        {name: value for name, value in to_value(message).items() if only is None or name in only}
        for message in messages
        if output not in TABLES
    ]
    return write_values(values, output)


def write_payloads(tasks: Iterable[Task]) -> None:
    """Print the payloads unchanged, with a newline after each."""
    for task in tasks:
        click.echo(task.payload)


def write_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table without lines; numbers are right-aligned, control characters escaped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    cells = [list(row) for row in rows]
    for position, name in enumerate(header):
        is_number = bool(cells) and all(isinstance(row[position], int) for row in cells)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(terminal_text(str(cell))) for cell in row))
    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    console = Console(width=PIPE_COLUMNS, highlight=False)
    with console.capture() as written:
        console.print(table)
    for line in written.get().splitlines():
        click.echo(line.rstrip())


def write_line(line: str, style: str) -> None:
    """Print a line; in the style, such as "red", if the output is a terminal with colours."""
    from rich.console import Console
    from rich.text import Text

    if sys.stdout.isatty():
        Console(highlight=False).print(Text(line, style), soft_wrap=True)
    else:
        click.echo(line)


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


def show_retry(policy: Retry) -> str:
    """Return the maximum of failed attempts and the range of the back-off, for people."""
    attempts = f"{policy.attempts_max} attempts" if policy.attempts_max else "no limit"
    if not policy.backoff_ms:
        return f"{attempts}, at once"
    least, most = show_duration(policy.backoff_ms), show_duration(policy.backoff_ms_max)
    return f"{attempts}, {least} to {most}"


def show_instant(at_ms: int) -> str:
    """Return a time in UTC for people; "-" for 0."""
    if not at_ms:
        return "-"
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
