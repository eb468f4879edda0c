"""Put tasks together with the commit of a Django transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections, transaction

from taskraft.worker.outbox import DatabaseCursor, Outbox
from taskraft.worker.outbox_relay import OutboxRelay

if TYPE_CHECKING:
    from taskraft.worker import App, Plan

P = ParamSpec("P")
R = TypeVar("R")

OUTBOX: Final = Outbox(placeholder="%s")
"""The table of the model `OutboxRow`."""


def put_on_commit(plan: Plan[Any], using: str = DEFAULT_DB_ALIAS) -> None:
    """Put a call after the commit of the current transaction; without a transaction, at once.

    The put happens at most once: a process that dies after the commit puts nothing. The error of a
    refused put is raised after the commit. Use `put_in_transaction` if each call must be put.
    """
    transaction.on_commit(partial(_put, plan), using=using)


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
    """Return a relay that puts the calls of the outbox; `manage.py taskraft_relay` runs it."""

    @contextmanager
    def begun() -> Iterator[DatabaseCursor]:
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            yield cursor

    return OutboxRelay(OUTBOX, app, begun)


def with_connections(function: Callable[P, R]) -> Callable[P, R]:
    """Close broken and old connections of the thread before and after a handler.

    Django does so for each request, and a worker has no requests. Place the decorator below
    `@app.task`.
    """

    @wraps(function)
    def handler(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return handler


def _put(plan: Plan[Any]) -> None:
    app: Any = plan.task.app
    app.put_many([plan])
