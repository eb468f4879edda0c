"""The declaration of a command that destroys something.

The declaration adds --dry-run, --yes and a paragraph to the help. The command asks for confirmation
on a terminal, and needs --yes elsewhere. A test finds commands without the declaration.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def is_terminal() -> bool:
    """Return whether a person can answer a question."""
    return sys.stdin.isatty()


class Condition(NamedTuple):
    """The command lines of a command that destroy something."""

    text: str
    """Condition for the help, for example "With --where"."""
    holds: Callable[[Mapping[str, Any]], bool]
    """Function that decides from the arguments and options of a command line."""


BY_FILTER: Final = Condition("With --where", lambda given: bool(given["where"]))
"""A filter may select other tasks than the caller has in mind; ids are the caller's choice."""

WITH_PRUNE: Final = Condition("With --prune", lambda given: bool(given["prune"]))
"""Without the option, a declared object that is gone stays on the cluster."""


class Confirmation(NamedTuple):
    """What a command line says about its confirmation."""

    is_needed: bool
    yes: bool
    dry_run: bool

    def only_if(self, destroys_something: object) -> Confirmation:
        """Return the confirmation of a command line that may turn out to destroy nothing."""
        return self._replace(is_needed=self.is_needed and bool(destroys_something))

    def check_input(self) -> None:
        """Check that the command can ask, if it must.

        Raises:
            click.UsageError: the input is not a terminal, and --yes was not given.
        """
        if self.is_needed and not (self.yes or self.dry_run or is_terminal()):
            raise click.UsageError("The input is not a terminal; give --yes to confirm.")

    def allows(self, question: Callable[[], str], preview: Callable[[], None]) -> bool:
        """Return whether the command has its effect; for --dry-run, show the effect instead.

        Args:
            question: returns the question; called only if the command asks.
            preview: prints what the command would do; called only for --dry-run.

        Raises:
            click.UsageError: the input is not a terminal, and --yes was not given.
            click.ClickException: the answer is no.
        """
        self.check_input()
        if self.dry_run:
            preview()
            return False
        if self.is_needed and not self.yes and not click.confirm(question(), err=True):
            raise click.ClickException("nothing was changed")
        return True


def destroys(
    loss: str, *, only: Condition | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare that a command destroys something; the command gets a `Confirmation`.

    Args:
        loss: what cannot be undone, in one sentence for the help.
        only: condition under which the command destroys something; None: always.
    """

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def confirmed(**options: Any) -> None:  # noqa: ANN401 - one type for each option
            yes, dry_run = bool(options.pop("yes")), bool(options.pop("dry_run"))
            is_needed = only is None or only.holds(options)
            command(confirmation=Confirmation(is_needed, yes, dry_run), **options)

        who = f"{only.text}, the command" if only is not None else "The command"
        rule = f"{who} asks for confirmation, and needs --yes without a terminal."
        confirmed.__doc__ = f"{(command.__doc__ or '').rstrip()}\n\n    {loss} {rule}\n    "
        confirmed.destroys = only or True  # type: ignore[attr-defined]  # read by tests
        for option in (
            click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
            click.option(
                "--dry-run", is_flag=True, help="Change nothing; show what would be changed."
            ),
        ):
            confirmed = option(confirmed)
        return confirmed

    return declare
