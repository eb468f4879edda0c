"""Names of contexts, which a shell completes from the file of contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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
