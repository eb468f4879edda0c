"""Put the calls of an outbox as tasks."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from taskraft import errors
from taskraft._durations import Duration, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft import AsyncClient
    from taskraft._request_batcher import ItemOutcome
    from taskraft.v1.task_pb2 import TaskSpec
    from taskraft.worker.app import App
    from taskraft.worker.outbox import Outbox, OutboxMessage, Transaction

log = logging.getLogger("taskraft.outbox")

INTERVAL_DEFAULT: Final = "1s"
REFUSAL_CHARACTERS_MAX: Final = 500
_OUTAGE: Final = (
    errors.RetryableError,
    errors.DeadlinePassed,
    errors.AccessError,
    errors.InternalError,
)
"""Errors of the cluster or of the credentials. The relay sends the same message again later."""


class OutboxRelay:
    """Moves the rows of an outbox to the cluster, in order for each tube.

    Each message has a request id that is stored before the message is sent. A relay that was killed
    sends the same message with the same id, so its tasks are put once. This holds while the
    cluster remembers the id: 10 minutes at least. Give tasks a unique key if a relay may be down
    for longer. Several relays may run at once, but then rows are not put in order.
    """

    def __init__(
        self,
        outbox: Outbox,
        app: App,
        transaction: Transaction,
        *,
        transient: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        """Store the table and its database.

        Args:
            outbox: the table.
            app: the app with the client.
            transaction: begins a transaction of the database.
            transient: errors of the database after which `run` tries again, such as the driver's
                `OperationalError`; default: none.
        """
        self._transient = transient if isinstance(transient, tuple) else (transient,)
        self._outbox = outbox
        self._app = app
        self._transaction = transaction

    def run(
        self, stopping: threading.Event | None = None, *, interval: Duration = INTERVAL_DEFAULT
    ) -> None:
        """Put rows until an event is set; log an outage or a transient error, and try again.

        Args:
            stopping: ends the relay after the current message; None: the relay never ends.
            interval: time between two looks at an empty table, and between two attempts.

        Raises:
            Exception: an error of the database that is not transient; start the relay again.
        """
        ended = stopping or threading.Event()
        pause = seconds(interval, "interval")
        while not ended.is_set():
            try:
                moved = self.run_once()
            except _OUTAGE as error:
                log.warning(
                    "the cluster does not accept the rows of the outbox; trying again: %s", error
                )
                moved = 0
            except self._transient as error:
                log.warning("the database of the outbox failed; trying again: %s", error)
                moved = 0
            if not moved:
                ended.wait(pause)

    def run_once(self) -> int:
        """Put the rows that the table has now, and return the number of these rows.

        Raises:
            TaskraftError: the cluster cannot be reached, or refuses the credentials. The rows stay.
        """
        moved = 0
        while True:
            with self._transaction() as cursor:
                message = self._outbox.begin(cursor)
            if message is None:
                return moved
            put, is_postponed = self._put(message)
            moved += put
            if is_postponed:
                return moved

    def _put(self, message: OutboxMessage) -> tuple[int, bool]:
        """Put one message; return the number of finished rows, and True if rows are postponed."""
        clients = self._app.clients
        outcomes = clients.run(_outcomes(clients.blocking_inner(), message))
        refused: dict[int, str] = {}
        postponed: list[int] = []
        for row, outcome in zip(message.ids, outcomes, strict=True):
            if isinstance(outcome, errors.RetryableError):
                postponed.append(row)
            elif isinstance(outcome, errors.KeyTaken):
                log.info("row %d: a task with its unique key exists: %s", row, outcome)
            elif isinstance(outcome, errors.TaskraftError):
                log.error("row %d was refused, and stays in the table: %s", row, outcome)
                refused[row] = f"{outcome.reason}: {outcome}"[:REFUSAL_CHARACTERS_MAX]
        with self._transaction() as cursor:
            self._outbox.end(cursor, message, refused, postponed)
        return len(message.ids) - len(refused) - len(postponed), bool(postponed)


async def _outcomes(client: AsyncClient, message: OutboxMessage) -> list[ItemOutcome[int]]:
    """Put the rows of a message; if the cluster refuses the message as a whole, one by one.

    Otherwise one row that cannot be put would hold up the others.
    """
    try:
        return await _put(client, message.tube, message.specs, message.request_id)
    except _OUTAGE:
        raise
    except errors.TaskraftError:
        return [
            await _outcome(client, message.tube, spec, f"{message.request_id}-{row}")
            for row, spec in zip(message.ids, message.specs, strict=True)
        ]


async def _outcome(
    client: AsyncClient, tube: str, spec: TaskSpec, request_id: str
) -> ItemOutcome[int]:
    try:
        (outcome,) = await _put(client, tube, [spec], request_id)
    except _OUTAGE:
        raise
    except errors.TaskraftError as refused:
        return refused
    return outcome


async def _put(
    client: AsyncClient, tube: str, specs: Sequence[TaskSpec], request_id: str
) -> list[ItemOutcome[int]]:
    connection = client._connection  # noqa: SLF001 - no public put has a request id for several tasks
    connection.check_usable()
    return await connection.put(tube, specs, connection.deadline(None), request_id)
