"""The commands ``taskraft outbox ddl`` and ``taskraft outbox relay``."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import click

from taskraft.cli.app import load_app, load_global
from taskraft.cli.log_lines import log_to_stderr
from taskraft.cli.options import DURATION, SuggestingGroup, examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from taskraft.worker.outbox import DatabaseCursor, Outbox

table_option = click.option(
    "--table", default="taskraft_outbox", show_default=True, help="Name of the table."
)


@click.group(cls=SuggestingGroup, epilog=examples("taskraft outbox ddl --dialect sqlite"))
def outbox() -> None:
    """Create the table of an outbox, and put its rows.

    A program inserts calls in its own transaction with `Outbox.put`, and the relay puts the calls
    as tasks.
    """


@outbox.command(epilog=examples("taskraft outbox ddl --dialect postgresql"))
@click.option(
    "--dialect",
    type=click.Choice(("sqlite", "postgresql", "mysql")),
    default="postgresql",
    show_default=True,
    help="Database of the table.",
)
@table_option
def ddl(*, dialect: str, table: str) -> None:
    """Print the statement that creates the table.

    The command needs no app and no database.
    """
    from taskraft.worker import Outbox

    click.echo(f"{Outbox(table).ddl(dialect)};")


@outbox.command(epilog=examples("taskraft outbox relay shop:app --database shop:connect"))
@click.argument("reference", metavar="MODULE:APP")
@click.option(
    "--database",
    metavar="MODULE:FUNCTION",
    required=True,
    envvar="TASKRAFT_OUTBOX_DATABASE",
    show_envvar=True,
    help="Function without parameters that returns a new DB-API connection, without autocommit.",
)
@table_option
@click.option(
    "--interval",
    type=DURATION,
    default="1s",
    show_default=True,
    help="Pause while the table is empty, and between two attempts.",
)
@click.option("--once", is_flag=True, help="Put the rows that the table has now, and end.")
def relay(*, reference: str, database: str, table: str, interval: float, once: bool) -> None:
    """Put the rows of an outbox, until SIGTERM or Ctrl-C.

    The app chooses the cluster and the credentials, as for `taskraft worker`. The first signal ends
    the relay after the current message. While the cluster or the database cannot be reached, the
    relay tries again.
    """
    from taskraft.worker import Outbox, OutboxRelay

    app = load_app(reference)
    connect = load_global(database, "a function like shop.database:connect")
    if not callable(connect):
        raise click.UsageError(f"{database} is not a function but {type(connect).__name__}")
    log_to_stderr("INFO", "text", is_chosen=False)
    connections = _Connections(Outbox(table), connect)
    with app, connections:
        app.create_tubes()
        found = OutboxRelay(
            connections.outbox, app, connections.transaction, transient=connections.transient
        )
        if once:
            click.echo(f"{found.run_once()} calls were put")
            return
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        click.echo("the relay runs")
        found.run(stopping, interval=interval)


class _Connection(Protocol):
    """A `DatabaseConnection` that the relay opens and closes."""

    def cursor(self) -> Any:  # noqa: ANN401 - each driver has cursors of its own
        """Return a new cursor."""
        ...

    def commit(self) -> object:
        """Commit the transaction."""
        ...

    def rollback(self) -> object:
        """Roll the transaction back."""
        ...

    def close(self) -> object:
        """Close the connection."""
        ...


class _Connections:
    """Opens connections to the database; another one takes the place of one that has failed.

    The block opens the first connection. An error of the driver that ends the block becomes a
    `click.ClickException`.

    Attributes:
        outbox: the table.
        transient: errors of the driver after which the relay tries again.
    """

    def __init__(self, outbox: Outbox, connect: Callable[[], _Connection]) -> None:
        self.outbox: Final = outbox
        self.transient: tuple[type[Exception], ...] = ()
        self._failures: tuple[type[Exception], ...] = ()
        self._connect = connect
        self._connection: _Connection | None = None

    def __enter__(self) -> Self:
        try:
            self._connection = self._connect()
        except Exception as error:
            raise click.ClickException(
                f"the database cannot be opened: {type(error).__name__}: {error}"
            ) from error
        if not callable(getattr(self._connection, "cursor", None)):
            raise click.ClickException(
                f"the function of --database returned {type(self._connection).__name__}, which is "
                f"no connection"
            )
        # DB-API: a connection has the errors of its driver as attributes.
        self.transient = self._errors("OperationalError", "InterfaceError")
        self._failures = self._errors("Error")
        return self

    def _errors(self, *names: str) -> tuple[type[Exception], ...]:
        found = (getattr(self._connection, name, None) for name in names)
        return tuple(error for error in found if error is not None)

    @contextmanager
    def transaction(self) -> Iterator[DatabaseCursor]:
        """Begin a transaction, on a new connection after an error."""
        if self._connection is None:
            self._connection = self._connect()
        try:
            with self.outbox.transactions(self._connection)() as cursor:
                yield cursor
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self._failures):  # the connection may be broken
                connection.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()
        if isinstance(error, self._failures):
            raise click.ClickException(f"the database failed: {error}") from error
