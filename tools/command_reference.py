"""Describe every command of the command line in Markdown, from the parser.

`make docs` inserts the text into docs/reference/commands.md.
"""

from collections.abc import Iterator
from typing import Final

import click

from taskraft.cli import main

SHARED: Final = frozenset({"help", "output", *(option.name for option in main.params)})
"""Options that the page describes once, in the section of the root command and in its head."""


def commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield a command and all commands below it, each with its words."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, f"no command {' '.join((*path, name))}"
            yield from commands(below, (*path, name))


def text() -> str:
    """Return the description of all commands, in the order of the help."""
    return "\n".join(
        line for path, command in commands(main, ("taskraft",)) for line in section(path, command)
    )


def section(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    """Yield the lines of one command: usage, help, options and examples."""
    context = click.Context(command, info_name=" ".join(path))
    words = " ".join(path)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"{'##' if len(path) <= 2 else '###'} {words}\n"
    yield f"```text\n{words} {usage}\n```\n"
    yield _paragraphs(command.help or "") + "\n"
    records = [
        record
        for option in command.get_params(context)
        if (len(path) == 1 or option.name not in SHARED)
        and (record := option.get_help_record(context))
    ]
    if records:
        yield "| option | meaning |"
        yield "| --- | --- |"
        for names, meaning in records:
            yield f"| `{_cell(names)}` | {_escaped(_cell(meaning))} |"
        yield ""
    if command.epilog:
        yield f"```text\n{_example(command.epilog)}\n```\n"


def _paragraphs(text: str) -> str:
    """Return a help text as paragraphs of Markdown."""
    return "\n\n".join(_escaped(block) for block in _clean(text))


def _clean(text: str) -> list[str]:
    lines = [line.strip().replace("\b", "") for line in text.splitlines()]
    return [" ".join(block.split()) for block in "\n".join(lines).split("\n\n") if block.strip()]


def _example(epilog: str) -> str:
    lines = [line.replace("\b", "").strip() for line in epilog.splitlines()]
    return "\n".join(line for line in lines if line)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _escaped(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "*_<>[]" else letter for letter in text)
