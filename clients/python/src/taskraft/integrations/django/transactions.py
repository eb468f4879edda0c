"""Put tasks together with the commit of a Django transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from django.db import (
    DEFAULT_DB_ALIAS,
    OperationalError,
    close_old_connections,
    connections,
    transaction,
)

from taskraft.worker.outbox import DatabaseCursor, Outbox
from taskraft.worker.outbox_relay import OutboxRelay

if TYPE_CHECKING:
    from taskraft.worker import App, Plan

P = ParamSpec("P")
R = TypeVar("R")

OUTBOX: Final = Outbox(placeholder="%s")
"""The table of the model `OutboxRow`."""
_LOCK: Final = "UPDATE taskraft_outbox SET refusal = refusal WHERE 1 = 0"
"""A statement that locks a SQLite database for writing, and changes nothing."""


def put_on_commit(plan: Plan[Any], using: str = DEFAULT_DB_ALIAS) -> None:
    """Put a call after the commit of the current transaction; without a transaction, at once.

    The put happens at most once: a process that dies after the commit puts nothing. The error of a
    put after the commit is logged by Django, and the later calls of the transaction are put. Use
    `put_in_transaction` if each call must be put.

    Raises:
        TaskraftError: there is no transaction, and the put was refused or failed.
    """
    app: Any = plan.task.app

    def put_call() -> None:
        app.put_many([plan])

    transaction.on_commit(put_call, using=using, robust=connections[using].in_atomic_block)


def put_in_transaction(plan: Plan[Any], using: str = DEFAULT_DB_ALIAS) -> None:
    """Store a call in the outbox, with the current transaction; the relay puts it.

    Args:
        plan: made by `TaskFunction.plan`.
        using: alias of the database.

    Raises:
        TransactionManagementError: an earlier error has broken the transaction.
    """
    OUTBOX.put(connections[using], plan)


def relay_of(app: App, using: str = DEFAULT_DB_ALIAS) -> OutboxRelay:
    """Return a relay that puts the calls of the outbox; `manage.py taskraft_relay` runs it.

    `OutboxRelay.run` tries again after an `OperationalError`, for example a lost connection.
    """

    @contextmanager
    def begun() -> Iterator[DatabaseCursor]:
        connection = connections[using]
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
        with transaction.atomic(using=using), connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                # SQLite waits for the lock only if the first statement of a transaction writes.
                cursor.execute(_LOCK)
            yield cursor

    return OutboxRelay(OUTBOX, app, begun, transient=OperationalError)


def with_connections(function: Callable[P, R]) -> Callable[P, R]:
    """Close broken and old connections of the thread before and after a handler.

    Django does so for each request, and a worker has no requests. Place the decorator below
    `@app.task`.

    Raises:
        TypeError: the handler is a coroutine function; Django's connections belong to threads.
    """
    if iscoroutinefunction(function):
        raise TypeError(
            f"with_connections needs a handler that runs in a thread; {function.__qualname__} is "
            "declared with async def"
        )

    @wraps(function)
    def handler(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return handler
