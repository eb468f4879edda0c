"""Store calls in a table of the application's database, in the transaction of its other changes.

A put after the commit is lost if the process dies between the commit and the put. A put before the
commit remains if the transaction is rolled back. An `OutboxRelay` puts a call of the outbox if and
only if the transaction is committed. See docs/integrations.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from taskraft._request_batcher import MESSAGE_BYTES_MAX
from taskraft.v1 import task_pb2

if TYPE_CHECKING:
    from taskraft.worker.task import Plan

TABLE_DEFAULT: Final = "taskraft_outbox"

_TYPES: Final = {
    "sqlite": ("INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB"),
    "postgresql": ("BIGSERIAL PRIMARY KEY", "BYTEA"),
    "mysql": ("BIGINT AUTO_INCREMENT PRIMARY KEY", "LONGBLOB"),
}
"""Types of the key and of bytes, by dialect."""


class DatabaseCursor(Protocol):
    """The part of a DB-API cursor that an outbox uses."""

    def execute(self, operation: Any, parameters: Any = ..., /) -> object:  # noqa: ANN401 - drivers differ
        """Execute a statement."""
        ...

    def fetchall(self) -> Sequence[Any]:
        """Return all rows of a query."""
        ...


class DatabaseConnection(Protocol):
    """The part of a DB-API connection that an outbox uses."""

    def cursor(self) -> Any:  # noqa: ANN401 - each driver has cursors of its own
        """Return a new cursor."""
        ...

    def commit(self) -> object:
        """Commit the transaction."""
        ...

    def rollback(self) -> object:
        """Roll the transaction back."""
        ...


Transaction: TypeAlias = Callable[[], AbstractContextManager[DatabaseCursor]]
"""Begins a transaction that the end of the block commits, or rolls back after an error."""


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """Rows of one tube that are put in one message, with the same request id after each crash."""

    request_id: str
    tube: str
    ids: Sequence[int]
    specs: Sequence[task_pb2.TaskSpec]


class Outbox:
    """A table of calls that are not put yet, for SQLite, PostgreSQL and MySQL."""

    def __init__(self, table: str = TABLE_DEFAULT, *, placeholder: str | None = None) -> None:
        """Name the table.

        Args:
            table: name of the table, made by `ddl`.
            placeholder: of parameters in statements; default: "?" for `sqlite3`, else "%s".

        Raises:
            ValueError: the table is no identifier.
        """
        if not table.isidentifier():
            raise ValueError(f"the table must be an identifier, not {table!r}")
        self.table: Final = table
        self._placeholder = placeholder

    def ddl(self, dialect: str = "postgresql") -> str:
        """Return the statement that creates the table, if it does not exist.

        Args:
            dialect: "sqlite", "postgresql" or "mysql".

        Raises:
            ValueError: the dialect is unknown.
        """
        if dialect not in _TYPES:
            raise ValueError(f"dialect must be one of {', '.join(_TYPES)}, not {dialect!r}")
        key, binary = _TYPES[dialect]
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table} (id {key}, tube VARCHAR(128) NOT NULL, "
            f"spec {binary} NOT NULL, request_id VARCHAR(64) NOT NULL DEFAULT '', "
            "refusal VARCHAR(2000) NOT NULL DEFAULT '')"
        )

    def put(self, connection: DatabaseConnection, plan: Plan[Any]) -> None:
        """Store a call in the current transaction of a connection.

        A delay of the call begins when the relay puts the call.

        Args:
            connection: a DB-API connection, or Django's connection; the caller commits.
            plan: made by `TaskFunction.plan`.

        Raises:
            ValueError: the call depends on a planned call.
        """
        content = plan.alone().SerializeToString(deterministic=True)
        cursor = connection.cursor()
        try:
            statement = (
                "INSERT INTO {table} (tube, spec, request_id, refusal) VALUES ({0}, {0}, '', '')"
            )
            self._execute(cursor, statement, plan.tube, content)
        finally:
            cursor.close()

    def transactions(self, connection: DatabaseConnection) -> Transaction:
        """Return a function that begins transactions on a connection, for an `OutboxRelay`."""

        @contextmanager
        def transaction() -> Iterator[DatabaseCursor]:
            cursor = connection.cursor()
            try:
                yield cursor
            except BaseException:
                connection.rollback()
                raise
            else:
                connection.commit()
            finally:
                cursor.close()

        return transaction

    def begin(self, cursor: DatabaseCursor) -> OutboxMessage | None:
        """Return the next message, and store its request id; None: there is no row.

        A message that was begun before, by a relay that has died, comes first, unchanged.
        """
        begun = self._rows(
            cursor,
            "SELECT request_id, tube FROM {table} WHERE request_id <> '' AND refusal = '' "
            "ORDER BY id LIMIT 1",
        )
        if begun:
            return self._message(cursor, *begun[0])
        first = self._rows(
            cursor,
            "SELECT tube FROM {table} WHERE request_id = '' AND refusal = '' ORDER BY id LIMIT 1",
        )
        if not first:
            return None
        tube, request_id = first[0][0], secrets.token_hex(16)
        for row in self._first_rows(cursor, tube):
            self._execute(
                cursor,
                "UPDATE {table} SET request_id = {0} WHERE id = {0} AND request_id = ''",
                request_id,
                row,
            )
        return self._message(cursor, request_id, tube)

    def _first_rows(self, cursor: DatabaseCursor, tube: str) -> list[int]:
        """Return at most 100 rows of a tube that fit into one message."""
        rows = self._rows(
            cursor,
            "SELECT id, LENGTH(spec) FROM {table} WHERE request_id = '' AND refusal = '' "
            "AND tube = {0} ORDER BY id LIMIT 100",
            tube,
        )
        chosen: list[int] = []
        size_bytes = 0
        for row, spec_bytes in rows:
            size_bytes += spec_bytes
            if chosen and size_bytes > MESSAGE_BYTES_MAX:
                break
            chosen.append(row)
        return chosen

    def _message(self, cursor: DatabaseCursor, request_id: str, tube: str) -> OutboxMessage | None:
        rows = self._rows(
            cursor,
            "SELECT id, spec FROM {table} WHERE request_id = {0} AND refusal = '' ORDER BY id",
            request_id,
        )
        specs = [task_pb2.TaskSpec.FromString(bytes(spec)) for _, spec in rows]
        # Another relay may have taken all rows between the two statements.
        return OutboxMessage(request_id, tube, [row for row, _ in rows], specs) if rows else None

    def end(
        self,
        cursor: DatabaseCursor,
        message: OutboxMessage,
        refused: dict[int, str],
        postponed: Sequence[int],
    ) -> None:
        """Delete the rows of a message that were put.

        Changes only rows that still belong to the message: another relay may have ended the message
        before, and rows may be part of a later message since.

        Args:
            cursor: of a transaction.
            message: the message.
            refused: reasons by row; such rows stay in the table.
            postponed: rows that are put again later, in another message.
        """
        update = (
            "UPDATE {table} SET request_id = '', refusal = {0} WHERE id = {0} AND request_id = {0}"
        )
        delete = "DELETE FROM {table} WHERE id = {0} AND request_id = {0}"
        request_id = message.request_id
        for row in message.ids:
            if row in refused:
                self._execute(cursor, update, refused[row], row, request_id)
            elif row in postponed:
                self._execute(cursor, update, "", row, request_id)
            else:
                self._execute(cursor, delete, row, request_id)

    def retry_refused(self, connection: DatabaseConnection) -> None:
        """Let the relay put the refused rows again; the caller commits."""
        cursor = connection.cursor()
        try:
            self._execute(cursor, "UPDATE {table} SET refusal = '' WHERE refusal <> ''")
        finally:
            cursor.close()

    def _rows(
        self, cursor: DatabaseCursor, statement: str, *parameters: object
    ) -> Sequence[tuple[Any, ...]]:
        self._execute(cursor, statement, *parameters)
        return cursor.fetchall()

    def _execute(self, cursor: DatabaseCursor, statement: str, *parameters: object) -> None:
        placeholder = self._placeholder
        if placeholder is None:
            # The module is not imported: most programs need no outbox.
            placeholder = "?" if type(cursor).__module__ == "sqlite3" else "%s"
        statement = statement.replace("{table}", self.table).replace("{0}", placeholder)
        cursor.execute(statement, parameters)
