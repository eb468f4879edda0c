"""Add the commands ``serve`` and ``dev`` to the client's command line."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import click


@click.command(epilog="\b\nExamples:\n  taskraft serve\n  taskraft serve --join 127.0.0.1:7401")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="TASKRAFT_CONFIG",
    help="TOML file with settings; environment variables override it.",
)
@click.option(
    "--join",
    metavar="ADDRESSES",
    envvar="TASKRAFT_JOIN",
    help="Join the cluster at these client addresses (host:port,host:port) at the first start.",
)
def serve(config: Path | None, join: str | None) -> None:
    """Run one node.

    Settings come from TASKRAFT_... variables such as TASKRAFT_DATA_DIR, and the TOML file; see
    docs/configuration.md.
    """
    # Imported in the function, so that the help of other commands does not load gRPC. The collector
    # is off and SIGUSR1 is held back meanwhile; see ``taskraft_service.process.__main__``.
    gc.disable()
    from taskraft_service.process import log_level_signal

    log_level_signal.hold()
    from taskraft_service.config.server_config import CONFIG_VARIABLE
    from taskraft_service.process.main import run

    if config is not None:
        os.environ[CONFIG_VARIABLE] = str(config)
    if join is not None:
        os.environ["TASKRAFT_JOIN"] = join
    raise SystemExit(run())


@click.command(epilog="\b\nExample:\n  taskraft dev --nodes 3")
@click.option(
    "--nodes", default=1, show_default=True, type=click.IntRange(1, 7), help="Number of nodes."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory that keeps the data; without it the data is deleted when the cluster stops.",
)
@click.option(
    "--port",
    default=7401,
    show_default=True,
    type=click.IntRange(1, 65_000),
    help="Client port of the first node; each further node adds 10.",
)
@click.option(
    "--restart/--no-restart",
    "restarts",
    default=True,
    show_default=True,
    help="Start a node again after its process was killed, or run on with the other nodes.",
)
@click.option(
    "--console/--no-console",
    "has_console",
    default=True,
    show_default=True,
    help="Serve the web console too, if the distribution taskraft-console is installed.",
)
def dev(*, nodes: int, data: Path | None, port: int, restarts: bool, has_console: bool) -> None:
    """Run a cluster on this machine, for development.

    The first put creates a missing tube. A node whose process exits is started again with its data.
    Ctrl-C stops the cluster.
    """
    from taskraft_service.process.dev import run_dev

    raise SystemExit(run_dev(nodes, data, port, restarts=restarts, has_console=has_console))
