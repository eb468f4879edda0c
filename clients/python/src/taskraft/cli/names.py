"""Arguments that a shell completes with names from the cluster or from the file of contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.options import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click.shell_completion import CompletionItem

    from taskraft import Client

COMPLETION_SECONDS: Final = 0.5
"""Time limit of a call for completion, in seconds."""


class NameType(click.ParamType[str]):
    """A name; `find` returns the names that a client can read."""

    def __init__(self, name: str, find: Callable[[Client], Iterable[str]]) -> None:
        self.name = name
        self._find = find

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with the incomplete word; none if the call fails."""
        from click.shell_completion import CompletionItem

        from taskraft.errors import TaskraftError

        del param
        target = ctx.params.get("target")
        try:
            with ctx.scope(), connect(target, COMPLETION_SECONDS) as client:
                names = [*self._find(client)]
        except (TaskraftError, click.ClickException, ValueError, OSError):
            return []  # the terminal is in the middle of a line, which a message would destroy
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


TUBE: Final = NameType("tube", lambda client: [each.name for each in client.list_tubes()])
SCHEDULE: Final = NameType(
    "schedule", lambda client: [each.name for each in client.schedules.list()]
)
GROUP: Final = NameType("group", lambda client: [each.name for each in client.groups.list()])


class ContextType(click.ParamType[str]):
    """The name of a context."""

    name = "context"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the contexts that begin with the incomplete word."""
        from click.shell_completion import CompletionItem

        from taskraft.cli.context_file import ContextFile

        del ctx, param
        try:
            names = sorted(ContextFile.load().contexts)
        except (click.ClickException, OSError):
            return []  # the terminal is in the middle of a line, which a message would destroy
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


CONTEXT: Final = ContextType()
