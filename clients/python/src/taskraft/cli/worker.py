"""The command ``taskraft worker``."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING, Unpack, cast

import click
from click.core import ParameterSource

from taskraft.cli.app import list_tasks, load_app
from taskraft.cli.log_lines import log_to_stderr
from taskraft.cli.options import DURATION, SIZE, examples

if TYPE_CHECKING:
    from taskraft.worker import WorkerOptions


def _weights(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str, int] | None:
    """Return the weights by tube, or None."""
    weights = {}
    for one in given:
        tube, _, weight = one.rpartition("=")
        if not tube or not weight.isdecimal():
            raise click.BadParameter(f"{one!r} is not TUBE=N, such as mail=3")
        weights[tube] = int(weight)
    return weights or None


@click.command(epilog=examples("taskraft worker shop.tasks:app --tubes mail --threads 16"))
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--tubes",
    multiple=True,
    default=["*"],
    envvar="TASKRAFT_WORKER_TUBES",
    help="Only tasks of this tube or pattern; repeatable.  [default: all]",
)
@click.option(
    "--only",
    multiple=True,
    metavar="TASK",
    envvar="TASKRAFT_WORKER_ONLY",
    help="Only this task; repeatable.",
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="TUBE=N",
    callback=_weights,
    envvar="TASKRAFT_WORKER_WEIGHTS",
    help="Share of this tube while several have tasks; repeatable.  [default: none]",
)
@click.option(
    "--urgent-slots",
    type=click.IntRange(1),
    envvar="TASKRAFT_WORKER_URGENT_SLOTS",
    help="Slots of each pool that only tasks as urgent as --urgent-bound use.  [default: none]",
)
@click.option(
    "--urgent-bound",
    type=int,
    metavar="PRIORITY",
    envvar="TASKRAFT_WORKER_URGENT_BOUND",
    help="Least urgent priority for --urgent-slots.",
)
@click.option(
    "--async",
    "async_slots",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    envvar="TASKRAFT_WORKER_ASYNC",
    help="Maximum number of coroutines at once.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    envvar="TASKRAFT_WORKER_THREADS",
    help="Maximum number of handlers in threads at once.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    envvar="TASKRAFT_WORKER_PROCESSES",
    help='Processes for tasks of the pool "process".  [default: number of processors]',
)
@click.option(
    "--max-tasks",
    type=click.IntRange(1),
    envvar="TASKRAFT_WORKER_MAX_TASKS",
    help="Replace a process after this number of tasks.  [default: no limit]",
)
@click.option(
    "--max-memory",
    type=SIZE,
    envvar="TASKRAFT_WORKER_MAX_MEMORY",
    help="Replace a process that has grown by more than this, such as 500MiB.  [default: no limit]",
)
@click.option(
    "--max-lifetime",
    type=DURATION,
    envvar="TASKRAFT_WORKER_MAX_LIFETIME",
    help="Drain and end after this time, such as 1d.  [default: no limit]",
)
@click.option(
    "--grace",
    type=DURATION,
    default="22s",
    show_default=True,
    envvar="TASKRAFT_WORKER_GRACE",
    help="Time that handlers have to finish after SIGTERM or Ctrl-C.",
)
@click.option(
    "--cancel-grace",
    type=DURATION,
    default="5s",
    show_default=True,
    envvar="TASKRAFT_WORKER_CANCEL_GRACE",
    help="Time that interrupted handlers have to clean up after the grace.",
)
@click.option(
    "--health",
    metavar="HOST:PORT",
    envvar="TASKRAFT_WORKER_HEALTH",
    help="Answer probes at /livez and /readyz.  [default: no]",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    envvar="TASKRAFT_WORKER_METRICS",
    help="Serve /metrics for Prometheus.  [default: no]",
)
@click.option(
    "--reload",
    is_flag=True,
    help="Restart when a Python file below this directory changes, for development.",
)
@click.option("--check", is_flag=True, help="Import the app, list its tasks, and exit.")
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error"), case_sensitive=False),
    default="info",
    show_default=True,
    envvar="TASKRAFT_WORKER_LOG_LEVEL",
    help="Minimum severity of the logged lines.",
)
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    envvar="TASKRAFT_WORKER_LOG_FORMAT",
    help="Form of the log lines; json has the fields of the task.",
)
def worker(
    *,
    app: str,
    check: bool,
    reload: bool,
    log_level: str,
    log_format: str,
    **given: Unpack[WorkerOptions],
) -> None:
    """Run the tasks of an app, until SIGTERM or Ctrl-C.

    The app chooses the cluster and the credentials. Values that the app does not set come from
    environment variables such as TASKRAFT_TARGET and TASKRAFT_CA.

    The first signal drains: handlers may finish within the grace, and other tasks are handed back
    without counting an attempt. Before the worker takes tasks, the first signal ends it. A second
    signal ends the process at once.

    Exit codes: 0 drained, also after the maximum lifetime, 2 usage or import, 5 no cluster, 7 the
    grace was over, 8 half of the threads were stuck, 9 code of the app did not end within the
    cancel grace, 128 and the number of the signal after a second signal
    """
    if reload and not check:
        log_to_stderr(log_level.upper(), log_format, is_chosen=False)
        sys.exit(_reloading())
    if check:
        list_tasks(load_app(app))
        return
    from taskraft.worker.collector import spare_the_collector
    from taskraft.worker.watchdog import process_watched

    with process_watched():
        loaded = load_app(app)
        spare_the_collector()
        log_to_stderr(log_level.upper(), log_format, is_chosen=_is_given("log_format"))
        try:
            reason = asyncio.run(loaded.run(**_options(given)))
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        logging.shutdown()
        sys.stdout.flush()
        # Threads that still run would keep the interpreter from ending.
        os._exit(reason)


def _options(given: WorkerOptions) -> WorkerOptions:
    return cast("WorkerOptions", {k: value for k, value in given.items() if value is not None})


def _reloading() -> int:
    """Run the same command without `--reload` in processes of its own."""
    try:
        from taskraft.cli.reload import run_reloading
    except ImportError as error:
        raise click.UsageError(
            "--reload needs watchfiles: pip install 'taskraft[reload]'"
        ) from error
    return run_reloading([argument for argument in sys.argv[1:] if argument != "--reload"])


def _is_given(option: str) -> bool:
    """Return whether an option was given, on the command line or in the environment."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not ParameterSource.DEFAULT
