"""The commands ``taskraft context``: name clusters, and choose the one that commands use."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.context_name import CONTEXT
from taskraft.cli.options import SuggestingGroup, examples, output_option
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft.cli.context_file import ContextFile


CONTEXT_SHAPE: Final = fields(
    *("name", "is_current", "target", "ca", "cert", "key", "token_file", "token_variable"),
)
"""Shape of the output: the name, and the fields of `ClusterContext`."""


@click.group(cls=SuggestingGroup, epilog=examples("taskraft context list"))
def context() -> None:
    """Name clusters, and choose the one that commands use.

    A context holds the addresses of a cluster and references to credentials: paths of files, or the
    name of a variable with the token. A command uses, in this order: --target, --context,
    TASKRAFT_TARGET, TASKRAFT_CONTEXT, the current context.
    """


@context.command(
    epilog=examples(
        "taskraft context add local 127.0.0.1:7401",
        "taskraft context add prod n1.example:7401,n2.example:7401 --ca ca.pem --token-file token",
    )
)
@click.argument("name")
@click.argument("target")
@click.option("--ca", default="", help="CAs of the nodes' certificates, PEM.")
@click.option("--cert", default="", help="Client certificate, PEM.")
@click.option("--cert-key", "key", default="", help="Private key of the certificate, PEM.")
@click.option("--token-file", default="", help="File with the token.")
@click.option("--token-variable", default="", help="Environment variable with the token.")
@click.option("--replace", is_flag=True, help="Replace an existing context.")
@output_option(CONTEXT_SHAPE)
def add(*, name: str, target: str, replace: bool, output: str, **given: str) -> None:
    """Add the context NAME for the cluster with the addresses TARGET.

    The first context becomes the current one. Paths are stored as absolute paths.
    """
    from pathlib import Path

    from taskraft._node_selector import addresses_of
    from taskraft.cli.context_file import ClusterContext, ContextFile

    addresses_of(target, "TARGET")
    if bool(given["cert"]) != bool(given["key"]):
        raise click.UsageError("Give --cert and --cert-key together.")
    if given["token_file"] and given["token_variable"]:
        raise click.UsageError("Give either --token-file or --token-variable.")
    for option in ("ca", "cert", "key", "token_file"):
        if given[option]:
            path = Path(given[option]).absolute()
            if not path.is_file():
                raise click.UsageError(f"{path}: no such file")
            given[option] = str(path)
    file = ContextFile.load()
    file.add(name, ClusterContext(target=target, **given), replaces=replace)
    file.save()
    _show(file, [name], output)


@context.command(epilog=examples("taskraft context use prod", "taskraft context use -"))
@click.argument("name", type=CONTEXT)
@output_option(CONTEXT_SHAPE)
def use(*, name: str, output: str) -> None:
    """Make NAME the current context; "-" is the previous context."""
    from taskraft.cli.context_file import ContextFile

    file = ContextFile.load()
    chosen = file.use(name)
    file.save()
    _show(file, [chosen], output)


@context.command("list", epilog=examples("taskraft context list -o name"))
@output_option(CONTEXT_SHAPE)
def list_contexts(*, output: str) -> None:
    """List the contexts; "*" marks the current one."""
    from taskraft.cli.context_file import ContextFile

    file = ContextFile.load()
    _show(file, sorted(file.contexts), output)


@context.command(epilog=examples("taskraft context show", "taskraft context show prod -o json"))
@click.argument("name", type=CONTEXT, default="")
@output_option(CONTEXT_SHAPE)
def show(*, name: str, output: str) -> None:
    """Show the context NAME, or the one that commands use."""
    import os

    from taskraft.cli.context_file import NAME_VARIABLE, ContextFile

    file = ContextFile.load()
    chosen = name or os.environ.get(NAME_VARIABLE) or file.current
    file.find(chosen)
    _show(file, [chosen], "wide" if output == "table" else output)


@context.command(epilog=examples("taskraft context remove old"))
@click.argument("name", type=CONTEXT)
@output_option(CONTEXT_SHAPE)
def remove(*, name: str, output: str) -> None:
    """Remove the context NAME; files of credentials stay."""
    from taskraft.cli.context_file import ContextFile

    file = ContextFile.load()
    file.remove(name)
    file.save()
    _show(file, sorted(file.contexts), output)


def _show(file: ContextFile, names: Sequence[str], output: str) -> None:
    from taskraft.cli.context_file import FIELDS
    from taskraft.cli.output import write_table, write_values

    values = [
        {"name": name, "is_current": name == file.current, **asdict(file.contexts[name])}
        for name in names
    ]
    if write_values(values, output):
        return
    shown = FIELDS if output == "wide" else ("target",)
    write_table(
        ("", "NAME", *(each.upper().replace("_", " ") for each in shown)),
        (
            ("*" if one["is_current"] else "", one["name"], *(one[each] for each in shown))
            for one in values
        ),
    )
