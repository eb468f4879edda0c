"""Arguments that name tasks: a tube and ids, or names TUBE/ID as `-o name` prints them.

A single "-" reads the names from the standard input, one in each line.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from taskraft.cli.names import TASK_ID, TUBE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Command = Callable[..., None]

STANDARD_INPUT: Final = "-"
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
FORMS: Final = "TUBE ID..., TUBE/ID... or -"
RULE: Final = 'A task may also be named TUBE/ID. With "-", each line of the input is such a name.'


def tasks_argument(*, is_required: bool = False) -> Callable[[Command], Command]:
    """Add the arguments for tasks; the command runs once for each tube, with `tube` and `ids`.

    Args:
        is_required: the command needs at least one id.
    """

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def for_each_tube(*, tube: str, ids: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - one type for each option
            for name, chosen in _by_tube(tube, ids, is_required=is_required).items():
                command(tube=name, ids=tuple(chosen), **options)

        for_each_tube.__doc__ = _with_rule(command.__doc__)
        with_ids = click.argument("ids", type=TASK_ID, metavar="[ID]...", nargs=-1)(for_each_tube)
        return click.argument("tube", type=TUBE)(with_ids)

    return add


def task_argument(command: Command) -> Command:
    """Add the arguments for one task: the command gets `tube` and `task_id`."""

    @functools.wraps(command)
    def for_task(*, tube: str, task_id: str | None, **options: Any) -> None:  # noqa: ANN401 - one type for each option
        ids = () if task_id is None else (task_id,)
        found = _by_tube(tube, ids, is_required=True)
        tasks = [(name, one) for name, chosen in found.items() for one in chosen]
        if len(tasks) != 1:
            raise click.UsageError("Give one task: TUBE ID, TUBE/ID or -.")
        ((name, chosen_id),) = tasks
        command(tube=name, task_id=chosen_id, **options)

    for_task.__doc__ = _with_rule(command.__doc__)
    with_id = click.argument("task_id", type=TASK_ID, metavar="ID", required=False)(for_task)
    return click.argument("tube", type=TUBE)(with_id)


def _with_rule(text: str | None) -> str:
    return f"{(text or '').rstrip()}\n\n    {RULE}\n    "


def _by_tube(tube: str, ids: tuple[str, ...], *, is_required: bool) -> Mapping[str, list[int]]:
    """Return the ids of the named tasks by tube, each once, in the order of the names.

    Raises:
        click.UsageError: a name or an id is malformed, or there is no id although one is required.
    """
    if tube == STANDARD_INPUT:
        if ids:
            raise click.UsageError('Give no further names after "-", which reads them all.')
        lines = [line.strip() for line in sys.stdin]
        return _of_names([line for line in lines if line])
    if "/" in tube:
        return _of_names((tube, *ids))
    if is_required and not ids:
        raise click.UsageError(f"Give tasks: {FORMS}.")
    return {tube: [*dict.fromkeys(map(_id, ids))]}


def _of_names(names: Iterable[str]) -> Mapping[str, list[int]]:
    found: dict[str, dict[int, None]] = {}
    for name in names:
        tube, slash, task_id = name.partition("/")
        if not (tube and slash):
            raise click.UsageError(f"'{name}' is not a task: it has not the form TUBE/ID.")
        found.setdefault(tube, {})[_id(task_id)] = None
    if not found:
        raise click.UsageError("The input names no task.")
    return {tube: [*ids] for tube, ids in found.items()}


def _id(text: str) -> int:
    found = whole_number(text)
    if found is None:
        raise click.UsageError(f"'{text}' is not a valid id of a task.")
    return found


def whole_number(text: str) -> int | None:
    """Return an id or a lease token; None: the text is not a decimal number of 64 bits."""
    if _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
