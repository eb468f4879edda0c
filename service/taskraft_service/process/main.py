"""Run one node as a process: read the settings, serve until a signal, exit with a status."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Final, TextIO, TypeGuard

import structlog

from taskraft_replication.errors import (
    DirectoryRefused,
    LogDamaged,
    LogUnreadable,
    ReplicationError,
    StorageFailed,
)
from taskraft_replication.node.node import Node
from taskraft_replication.storage.data_directory import PRIVATE_UMASK
from taskraft_service.access.principals import AccessFileInvalid
from taskraft_service.api.rpc.grpc_calls import release_frames
from taskraft_service.api.rpc.rpc_server import PortTaken
from taskraft_service.cluster.member_identity import DataMissing, JoinRefused
from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.config.server_config import ServerConfig, read_config
from taskraft_service.drivers import DriverUnusable
from taskraft_service.machine.state_comparison import StateDiffers
from taskraft_service.process import log_level_signal, parent_watch, tracing
from taskraft_service.process.descriptors import raise_limit
from taskraft_service.process.logs import one_line, set_up_logs, switch_debug
from taskraft_service.process.loop_watch import (
    LoopWatch,
    cpu_clock_of_this_thread,
    end_process,
)
from taskraft_service.process.member_replacement import begin_replacement, is_replaced_after
from taskraft_service.process.memory import return_freed_memory, spare_the_collector
from taskraft_service.process.native_output import captured_output
from taskraft_service.process.node_server import NodeServer
from taskraft_service.process.repair_journal import RepairJournal
from taskraft_service.queue.entities.tube_driver import TubeDriverMissing
from taskraft_service.record_budget import RecordBudget
from taskraft_service.storage.directory import StateForeign, StateMissing
from taskraft_service.storage.node_storage import NODE_STORAGE, NodeStorage
from taskraft_service.storage.rocks import StateDamaged

log: Final = structlog.get_logger(__name__)

EXIT_OK: Final = 0
EXIT_REFUSED: Final = 1
"""The node cannot or must not run with its configuration."""
EXIT_USAGE: Final = 2
EXIT_BROKEN: Final = 70
"""The node stopped by itself because of a broken disk or a bug."""

ASSERTIONS_OFF: Final = (
    "Python runs with assertions disabled (PYTHONOPTIMIZE or -O); a node relies on them to stop"
    " before replicas differ; unset PYTHONOPTIMIZE"
)


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


_ACCEPT_ERRORS: Final = RecordBudget(1, 1, time.monotonic)


class DiskSilent(Exception):
    """The node has stopped, but threads that wait for the disk are still running."""

    def __init__(self, status: int) -> None:
        super().__init__(f"threads wait for the disk; exit status {status}")
        self.status = status


def stop_on_defect(
    node: Node, loop: asyncio.AbstractEventLoop, context: Mapping[str, object]
) -> None:
    """Stop the node when a callback of the event loop raises an exception.

    The work of the failed callback is lost; for example, a call whose entry was never built would
    wait forever. A supervisor restarts the process.

    asyncio reports up to 100 times in one turn of the event loop that a port has no descriptor for
    a connection; the log gets one line a second.
    """
    error = context.get("exception")
    if isinstance(error, OSError) and "socket" in context:
        if _ACCEPT_ERRORS.take() is not None:
            log.warning("cannot accept a connection; the port tries again in 1 s", error=str(error))
        return
    loop.default_exception_handler(dict(context))
    if "handle" in context and isinstance(error, Exception):
        node.fail(error)


def _listen_for_the_end(*, has_lifeline: bool) -> asyncio.Future[None]:
    """Return a future that is done when a signal, or the exit of the parent, stops the node."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()

    def tell(by: str) -> None:
        if not told.done():
            log.info("stopping", reason=by)
            told.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tell, number.name)
    if has_lifeline:
        parent_watch.stop_with_parent(lambda: tell("exit of the parent process"))
    return told


async def _open(
    config: ServerConfig,
    told: asyncio.Future[None],
    stderr: TextIO,
    journal: RepairJournal,
    storage: NodeStorage,
) -> NodeServer | None:
    """Open a node, and wait for the cluster that it joins; return None if a signal stops it."""
    opening = asyncio.ensure_future(NodeServer.open(config, journal, storage))
    await asyncio.wait((opening, told), return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        opening.cancel()
        await asyncio.wait((opening,), timeout=config.stop_grace_ms / 1000)
    if not opening.done():
        _complain(f"the disk of {config.data_dir} did not answer while the node started", stderr)
        raise DiskSilent(EXIT_BROKEN)
    return None if opening.cancelled() else opening.result()


async def serve_until_told(
    config: ServerConfig,
    stderr: TextIO,
    *,
    has_lifeline: bool,
    storage: NodeStorage,
) -> int:
    """Run a node until a signal stops it or it breaks; return the exit status.

    Args:
        config: the settings.
        stderr: receives one line if the node breaks.
        has_lifeline: see ``run``.
        storage: see ``run``.

    Raises:
        DiskSilent: the process must exit without its threads.
    """
    spare_the_collector()  # the replay of the log, which follows, allocates most objects
    told = _listen_for_the_end(has_lifeline=has_lifeline)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, switch_debug, config.log_level)
    log_level_signal.deliver()
    journal = RepairJournal()
    while (status := await _serve_once(config, told, stderr, journal, storage)) is None:
        pass
    return status


async def _serve_once(
    config: ServerConfig,
    told: asyncio.Future[None],
    stderr: TextIO,
    journal: RepairJournal,
    storage: NodeStorage,
) -> int | None:
    """Open and run a node; return the exit status, or None if the node must rebuild its state.

    Raises:
        DiskSilent: the process must exit without its threads.
    """
    try:
        server = await _open(config, told, stderr, journal, storage)
    except (JoinRefused, ReplicationError) as error:
        was_suspected, journal.suspected_log = bool(journal.suspected_log), ""
        if not is_replaced_after(config, error) or not (was_suspected or journal.may_restart()):
            raise
        is_empty = isinstance(error, DataMissing)
        await asyncio.to_thread(begin_replacement, config, str(error), is_founding=is_empty)
        return None
    if server is None:
        return EXIT_OK
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)
    asyncio.get_running_loop().set_exception_handler(partial(stop_on_defect, server.node))
    await server.start()
    spare_the_collector()
    return_freed_memory()
    runs = server.components.loop_runs
    watch = LoopWatch(
        config.disk_hang_ms,
        partial(end_process, stderr, EXIT_BROKEN),
        stderr,
        runs.running,
        cpu_clock_of_this_thread(),
    )
    watch.start()
    stop_counting = runs.watch()
    await asyncio.wait((told, server.node.failed), return_when=asyncio.FIRST_COMPLETED)
    watch.stop()
    stop_counting()
    if server.node.failed.done():
        reason = server.node.failed.result()
        cause = reason.__cause__
        is_lost = is_replaced_after(config, reason, is_founding=server.node.is_founding)
        if is_lost and not told.done() and journal.may_restart():
            await _end_lost(server, reason, journal)
            return None
        if _is_rebuilt_after(cause) and not told.done() and journal.may_restart():
            await _end_damaged(server, cause)
            return None
        return await _end_broken(server, reason, stderr)
    try:
        await server.stop()
    except StorageFailed as error:
        _complain(str(error), stderr)
        raise DiskSilent(EXIT_BROKEN) from error
    return EXIT_OK


def _is_rebuilt_after(cause: BaseException | None) -> TypeGuard[StateDiffers | StateDamaged]:
    """Return whether a node that failed for this cause rebuilds its state and starts again."""
    return isinstance(cause, StateDiffers) or (isinstance(cause, StateDamaged) and cause.is_lost)


async def _end_damaged(server: NodeServer, cause: BaseException) -> None:
    """Stop a node whose state is damaged, and set the state aside; the log and the vote are intact.

    Raises:
        DiskSilent: the disk does not answer.
    """
    damage = str(cause)
    log.error("the node found a damaged state and starts again to repair it", reason=damage)
    release_frames(cause)  # they have iterators, which keep the database open
    try:
        await server.stop()
    except StorageFailed as error:
        raise DiskSilent(EXIT_BROKEN) from error
    await server.set_state_aside(damage)


async def _end_lost(server: NodeServer, reason: ReplicationError, journal: RepairJournal) -> None:
    """Stop a node whose log or vote is lost; the next opening replaces it.

    If the log is damaged, the next opening decides whether the node can complete its log, or must
    be replaced.

    Raises:
        DiskSilent: the disk does not answer.
    """
    log.error("the node has lost its data and starts again to be replaced", reason=str(reason))
    try:
        await server.stop()
    except StorageFailed as error:
        raise DiskSilent(EXIT_BROKEN) from error
    await asyncio.to_thread(server.machine.abandon)
    if isinstance(reason, LogUnreadable):
        journal.suspected_log = str(reason)
    elif not isinstance(reason, LogDamaged):
        is_founding = server.node.is_founding
        await asyncio.to_thread(
            begin_replacement, server.config, str(reason), is_founding=is_founding
        )


async def _end_broken(server: NodeServer, reason: ReplicationError, stderr: TextIO) -> int:
    """Stop a node that has failed; return the exit status.

    The node acknowledges nothing, because the state of its disk is unknown or the peers refuse it.
    """
    was_refused = isinstance(reason, DirectoryRefused)
    status = EXIT_REFUSED if was_refused else EXIT_BROKEN
    log.critical("node stops" if was_refused else "node is broken", reason=str(reason))
    _complain(str(reason), stderr)
    try:
        await server.stop()
    except StorageFailed as error:
        raise DiskSilent(status) from error
    except Exception as error:  # noqa: BLE001 - the failure before is the one to report
        log.warning("the broken node did not stop in order", reason=repr(error))
    return status


def run(*, has_lifeline: bool = False, storage: NodeStorage = NODE_STORAGE) -> int:
    """Run a node with the settings of the environment; return the exit status.

    An error that prevents the start is one line on stderr.

    Args:
        has_lifeline: the node stops with its parent, see ``taskraft_service.process.parent_watch``.
        storage: opens the files and the database of the node.
    """
    os.umask(PRIVATE_UMASK)
    if sys.flags.optimize:
        return _refuse(ConfigInvalid(ASSERTIONS_OFF), EXIT_USAGE, sys.stderr)
    try:
        config = read_config()
        raise_limit()
    except ConfigInvalid as error:
        return _refuse(error, EXIT_USAGE, sys.stderr)
    try:
        with captured_output() as stderr:
            return _run_loop(config, stderr, has_lifeline=has_lifeline, storage=storage)
    except DiskSilent as silent:
        # A normal exit of the interpreter would wait for the threads.
        logging.shutdown()
        os._exit(silent.status)


def _run_loop(
    config: ServerConfig, stderr: TextIO, *, has_lifeline: bool, storage: NodeStorage
) -> int:
    """Run a node on an event loop; return the exit status.

    Raises:
        DiskSilent: the loop is not closed, because closing the loop would wait for the threads.
    """
    try:
        tracing.export_from_environment()
        set_up_logs(config.log_format, config.log_level, config.node_name, stderr, config.audit_log)
    except ConfigInvalid as error:
        return _refuse(error, EXIT_USAGE, stderr)
    runner = asyncio.Runner()
    is_silent = False
    try:
        return runner.run(
            serve_until_told(config, stderr, has_lifeline=has_lifeline, storage=storage)
        )
    except DiskSilent:
        is_silent = True
        raise
    except _REFUSALS as error:
        return _refuse(error, EXIT_REFUSED, stderr)
    finally:
        if not is_silent:
            runner.close()


def _complain(text: str, stderr: TextIO) -> None:
    print(f"taskraft: {one_line(' '.join(text.split()))}", file=stderr, flush=True)


def _refuse(error: Exception, status: int, stderr: TextIO) -> int:
    _complain(str(error), stderr)
    return status


def main(storage: NodeStorage = NODE_STORAGE) -> int:
    """Run a node for another program such as ``taskraft dev``; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Run one node; see docs/configuration.md for its settings."
    )
    parser.add_argument(
        "--lifeline", action="store_true", help="stop at the end-of-file of standard input"
    )
    return run(has_lifeline=parser.parse_args().lifeline, storage=storage)
