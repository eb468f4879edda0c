"""The command ``taskraft completion``."""

from __future__ import annotations

import click

from taskraft.cli.options import examples


@click.command(
    epilog=examples(
        "taskraft completion bash", "taskraft completion zsh", "taskraft completion fish"
    )
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(*, shell: str) -> None:
    """Print a script that completes commands in a shell.

    Names of tubes, schedules, groups and members, ids of sessions, and ids of the first 50 tasks of
    a tube come from the cluster, within 500 ms. Names of contexts come from the file of contexts.
    """
    from click.shell_completion import get_completion_class

    chosen = get_completion_class(shell)
    assert chosen is not None
    root = click.get_current_context().find_root()
    click.echo(chosen(root.command, {}, "taskraft", "_TASKRAFT_COMPLETE").source())
