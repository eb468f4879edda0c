"""The options of ``taskraft take`` that run a command for each task."""

from __future__ import annotations

import functools
import shutil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource

from taskraft.cli.options import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

TASKS_MAX: Final = 1_000
"""Maximum number of tasks of one take."""


class TakeCommand(click.Command):
    """A command whose words after --exec, from the first that is no option, are a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; "--" is added before the program of --exec."""
        if "--exec" in args[:-1]:
            program = args.index("--exec") + 1
            program += self._options_length(args[program:])
            if args[program : program + 1] != ["--"]:
                args = [*args[:program], "--", *args[program:]]
        return super().parse_args(ctx, args)

    def _options_length(self, words: list[str]) -> int:
        """Return the number of words from the first that are options and their values."""
        with_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        length = 0
        while length < len(words) and words[length].startswith("-") and words[length] != "--":
            length += 2 if words[length] in with_value else 1
        return length


class ExecOptions(NamedTuple):
    """The options of `taskraft take` that need --exec."""

    command: tuple[str, ...]
    result: bool
    forever: bool
    grace: float


def exec_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets `execution`, which is None without --exec."""

    @functools.wraps(command)
    def checked(*, is_exec: bool, **options: Any) -> None:  # noqa: ANN401 - one type for each option
        given = ExecOptions(**{name: options.pop(name) for name in ExecOptions._fields})
        if is_exec:
            _check(given)
        else:
            _check_absence(options["tasks_max"])
        command(execution=given if is_exec else None, **options)

    for option in (
        click.option(
            "--grace",
            type=DURATION,
            default="10s",
            show_default=True,
            help="With --exec: time between SIGTERM and SIGKILL of a COMMAND that must end.",
        ),
        click.option(
            "--result", is_flag=True, help="With --exec: store the output of COMMAND as the result."
        ),
        click.option(
            "--forever", is_flag=True, help="With --exec: take tasks until Ctrl-C or SIGTERM."
        ),
        click.option("--exec", "is_exec", is_flag=True, help="Run COMMAND for each task."),
        click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[[--] COMMAND...]"),
    ):
        checked = option(checked)
    return checked


def _check(options: ExecOptions) -> None:
    """Check the options of a command line with --exec.

    Raises:
        click.UsageError: there is no such program, or another option has no meaning.
    """
    for name in ("is_ack", "raw", "output"):
        _refuse(name, "has no meaning with --exec")
    if options.forever:
        for name in ("tasks_max", "wait"):
            _refuse(name, "has no meaning with --forever")
    if not options.command:
        raise click.UsageError("Give the command after --exec.")
    if shutil.which(options.command[0]) is None:
        raise click.UsageError(f"There is no program {options.command[0]}.")


def _check_absence(tasks_max: int) -> None:
    """Check the options of a command line without --exec.

    Raises:
        click.UsageError: an option needs --exec.
    """
    for name in ExecOptions._fields:
        _refuse(name, "needs --exec")
    if tasks_max > TASKS_MAX:
        raise click.UsageError(f"A take without --exec has at most {TASKS_MAX} tasks.")


def _refuse(name: str, why: str) -> None:
    """Refuse a parameter that stands on the command line."""
    context = click.get_current_context()
    if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        shown = {"command": "COMMAND", "is_ack": "--ack or --keep", "tasks_max": "--max"}
        raise click.UsageError(f"{shown.get(name, f'--{name}')} {why}.")
