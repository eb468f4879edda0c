"""Options that several commands of ``taskraft pipeline`` have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_TARGET: Final = "127.0.0.1:7401"
"""Address of a development cluster."""

Command = TypeVar("Command", bound=Callable[..., None])


def target_option(command: Command) -> Command:
    """Add the option for the address of the cluster."""
    return click.option(
        "-t",
        "--target",
        "--endpoints",
        "endpoints",
        envvar="TASKRAFT_TARGET",
        default=DEFAULT_TARGET,
        show_default=True,
        help="Addresses of some nodes, host:port,host:port.",
    )(command)


def spark_options(command: Command) -> Command:
    """Add the options for the Spark session."""
    for option in (
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting."),
        click.option(
            "--master",
            default="local[*,3]",
            show_default=True,
            help="Spark master; taskraft-pipeline must be installed on the executors.",
        ),
    ):
        command = option(command)
    return command


def settings(conf: Sequence[str]) -> dict[str, str]:
    """Return the Spark settings of the command line by name."""
    found = {}
    for text in conf:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"a setting must have the form KEY=VALUE, not {text!r}")
        found[key] = value
    return found
