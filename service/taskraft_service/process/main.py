"""Run one node as a process: read the settings, serve until told to stop, exit with a reason."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Mapping
from functools import partial
from typing import Final

import structlog

from taskraft_replication.errors import DirectoryRefused, ReplicationError
from taskraft_replication.node.node import Node
from taskraft_service.access.principals import AccessFileInvalid
from taskraft_service.api.server import PortTaken
from taskraft_service.cluster.member_identity import JoinRefused
from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.config.server_config import ServerConfig, read_config
from taskraft_service.drivers import DriverUnusable
from taskraft_service.process import parent_watch
from taskraft_service.process.logs import set_up_logs
from taskraft_service.process.node_server import NodeServer
from taskraft_service.queue.entities.tube_driver import TubeDriverMissing
from taskraft_service.storage.directory import StateForeign, StateMissing
from taskraft_service.storage.rocks import StateDamaged

log: Final = structlog.get_logger(__name__)

EXIT_OK: Final = 0
EXIT_REFUSED: Final = 1
"""The node cannot or must not run as it is configured."""
EXIT_USAGE: Final = 2
EXIT_BROKEN: Final = 70
"""The node stopped by itself: a broken disk or a defect."""

ASSERTIONS_OFF: Final = (
    "Python runs with assertions disabled (PYTHONOPTIMIZE or -O); a node relies on them to stop"
    " before replicas differ; unset PYTHONOPTIMIZE"
)

COLLECTOR_THRESHOLDS: Final = (50_000, 20, 100)
"""New containers before the young ones are looked at; rounds of that before older ones are."""

_REFUSALS: Final = (
    JoinRefused,
    ReplicationError,
    StateForeign,
    StateMissing,
    StateDamaged,
    PortTaken,
    AccessFileInvalid,
    TubeDriverMissing,
    DriverUnusable,
    OSError,
)


def spare_the_collector() -> None:
    """Let the cycle collector look at what is new, not at all living tasks over and over.

    With the default thresholds it took a tenth of the CPU and paused the loop for up to 90 ms while
    tasks were taken in batches of 100; with these it took less than a hundredth.
    """
    gc.collect()
    # What was built so far lives until the end.
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def stop_on_defect(
    node: Node, loop: asyncio.AbstractEventLoop, context: Mapping[str, object]
) -> None:
    """Stop the node when a callback of the event loop raises: what it should have done is not done.

    A call whose entry was never built would wait for ever; a node that is gone is replaced.
    """
    loop.default_exception_handler(dict(context))
    error = context.get("exception")
    if "handle" in context and isinstance(error, Exception):
        node.fail(error)


def _listen_for_the_end(*, has_lifeline: bool) -> asyncio.Future[None]:
    """Return what is done when a signal, or the end of the lifeline, tells the node to stop."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()

    def tell(by: str) -> None:
        if not told.done():
            log.info("told to stop", by=by)
            told.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tell, number.name)
    if has_lifeline:
        parent_watch.stop_with_parent(lambda: tell("the end of the program that started this node"))
    return told


async def _open(config: ServerConfig, told: asyncio.Future[None]) -> NodeServer | None:
    """Open a node, which may wait long for the cluster that it joins; None: told to stop before."""
    opening = asyncio.ensure_future(NodeServer.open(config))
    await asyncio.wait((opening, told), return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        opening.cancel()
        await asyncio.wait((opening,))
    return None if opening.cancelled() else opening.result()


async def serve_until_told(config: ServerConfig, *, has_lifeline: bool = False) -> int:
    """Run a node until it is told to stop or breaks; return the exit status."""
    told = _listen_for_the_end(has_lifeline=has_lifeline)
    server = await _open(config, told)
    if server is None:
        return EXIT_OK
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)
    asyncio.get_running_loop().set_exception_handler(partial(stop_on_defect, server.node))
    await server.start()
    spare_the_collector()
    await asyncio.wait((told, server.node.failed), return_when=asyncio.FIRST_COMPLETED)
    if server.node.failed.done():
        reason = server.node.failed.result()
        was_refused = isinstance(reason, DirectoryRefused)
        # Nothing is known of the disk or of the state any more, or the others do not take part with
        # this node: end, and acknowledge nothing.
        log.critical("the node ends" if was_refused else "the node is broken", reason=str(reason))
        print(f"taskraft: {reason}", file=sys.stderr)
        with contextlib.suppress(Exception):
            await server.stop()
        return EXIT_REFUSED if was_refused else EXIT_BROKEN
    await server.stop()
    return EXIT_OK


def run(*, has_lifeline: bool = False) -> int:
    """Run a node as the environment says; return the exit status.

    Whatever prevents it is told in one line on stderr.

    Args:
        has_lifeline: see ``taskraft_service.process.parent_watch``.
    """
    if sys.flags.optimize:
        return _refuse(ConfigInvalid(ASSERTIONS_OFF), EXIT_USAGE)
    try:
        config = read_config()
    except ConfigInvalid as error:
        return _refuse(error, EXIT_USAGE)
    set_up_logs(config.log_format, config.log_level, config.node_name)
    try:
        return asyncio.run(serve_until_told(config, has_lifeline=has_lifeline))
    except _REFUSALS as error:
        return _refuse(error, EXIT_REFUSED)


def _refuse(error: Exception, status: int) -> int:
    line = " ".join(str(error).split())
    print(f"taskraft: {line}", file=sys.stderr)
    return status


def main() -> int:
    """Run a node for another program, for example ``taskraft dev``; return the exit status."""
    parser = argparse.ArgumentParser(description="Run one node; see docs/operating.md.")
    parser.add_argument("--lifeline", action="store_true", help="end with standard input")
    return run(has_lifeline=parser.parse_args().lifeline)


if __name__ == "__main__":
    sys.exit(main())
