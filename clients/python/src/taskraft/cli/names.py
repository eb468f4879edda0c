"""Arguments that a shell completes with names from the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from taskraft.cli.options import ROOT_TIMEOUT, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click.shell_completion import CompletionItem

    from taskraft import Client

    Find = Callable[[Client, click.Context], Iterable[str]]

COMPLETION_SECONDS: Final = 0.5
"""Time limit of a call for completion, in seconds; --timeout does not change it."""
TASKS_MAX: Final = 50
"""Maximum number of tasks whose ids are completed: those with the lowest ids."""


class NameType(click.ParamType[Any]):
    """A name; `find` returns the names that a client can read.

    Args:
        name: what is named, for messages.
        find: reads the names, with one call; gets the words of the command line so far.
        inner: type of the value.
    """

    def __init__(self, name: str, find: Find, inner: click.ParamType[Any] = click.STRING) -> None:
        self.name = name
        self._find = find
        self._inner = inner

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as in click
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - as in click
        """Return the value of a name."""
        return self._inner.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with the incomplete word; none if the call fails."""
        from click.shell_completion import CompletionItem

        from taskraft.errors import TaskraftError

        del param
        target = ctx.params.get("target")
        ctx.meta[ROOT_TIMEOUT] = COMPLETION_SECONDS
        try:
            with ctx.scope(), connect(target, COMPLETION_SECONDS) as client:
                names = [*self._find(client, ctx)]
        except (TaskraftError, click.ClickException, ValueError, OSError):
            return []  # the terminal is in the middle of a line, which a message would destroy
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _task_ids(client: Client, ctx: click.Context) -> Iterable[str]:
    """Return the ids of the first tasks of the tube that the command line names."""
    # Before an option without its value, click leaves the arguments unparsed in `args`.
    tube = ctx.params.get("tube") or next(iter(ctx.args), "")
    if not tube or tube == "-" or "/" in tube:
        return []  # the tasks are named TUBE/ID
    page = client.tube(tube).page(size=TASKS_MAX, payload=False)
    return [str(task.id) for task in page.tasks]


TUBE: Final = NameType("tube", lambda client, _: [each.name for each in client.list_tubes()])
SCHEDULE: Final = NameType(
    "schedule", lambda client, _: [each.name for each in client.schedules.list()]
)
GROUP: Final = NameType("group", lambda client, _: [each.name for each in client.groups.list()])
MEMBER: Final = NameType(
    "member", lambda client, _: [each.name for each in client.cluster_state().members]
)
SESSION: Final = NameType(
    "session", lambda client, _: [each.session_id for each in client.list_sessions()]
)
TASK_ID: Final = NameType("task id", _task_ids)
"""The id of a task of the argument TUBE, as text."""
TASK_NUMBER: Final = NameType("integer", _task_ids, click.INT)
"""The id of a task of the argument TUBE, as a number."""
