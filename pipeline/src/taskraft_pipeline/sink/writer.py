"""The writers of the data source, for batch queries and streaming queries.

The ``write`` methods run in the executors, ``commit`` and ``abort`` on the driver, in another
instance. Spark may call ``abort`` after a successful ``commit``, for example when the driver fails
to log the batch; deleting the stages of a committed version has no effect.
"""

from __future__ import annotations

import logging
import re
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from taskraft_pipeline.errors import (
    FeedRefused,
    TasksRefused,
    error_info,
    field_violations,
    refusal,
)
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.sink.task_rows import Chunk, Reject, TaskRows
from taskraft_pipeline.sink.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from taskraft.v1.error_pb2 import Error
    from taskraft_pipeline.sink.sink_options import SinkOptions

log = logging.getLogger(__name__)

REJECTS_MAX: Final = 10_000
"""Maximum number of rejected rows of one Spark task; they pass through the driver."""
REJECT_BYTES_MAX: Final = 16 << 20
"""Maximum size of the payloads of the rejected rows of one Spark task."""
ITEM: Final = re.compile(r"tasks\[(\d+)\]")
BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
"""Properties that Spark sets for the tasks of a streaming query."""


@dataclass(slots=True, frozen=True)
class StageMessage(WriterCommitMessage):
    """The tasks that one Spark task has staged.

    Attributes:
        app: name of the application.
        version: version of the batch.
        query: id of the streaming query; empty for a batch.
        stage: id of the stage task; 0: no task was staged.
        tasks: number of staged tasks.
        rejects: rows that are not valid tasks.
    """

    app: str
    version: int
    query: str
    stage: int
    tasks: int
    rejects: tuple[Reject, ...]


class StageWriter:
    """Stages the rows of one Spark task.

    Args:
        options: options of the write.
        transaction: the version that the rows belong to.
    """

    def __init__(self, options: SinkOptions, transaction: Transaction) -> None:
        self._options = options
        self._transaction = transaction
        self._rows = TaskRows(options.tube)
        self._reject_bytes = 0
        self.stage = 0
        self.tasks = 0

    @property
    def rejects(self) -> tuple[Reject, ...]:
        """Rows that are not valid tasks."""
        return tuple(self._rows.rejects)

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Stage all rows.

        Raises:
            TasksRefused: a row is not a valid task, and there is no folder for such rows, or there
                are too many of them.
        """
        for batch in batches:
            for chunk in self._rows.add(batch):
                self._put(chunk)
            self._check_rejects()
        for chunk in self._rows.rest():
            self._put(chunk)
        self._check_rejects()

    def _put(self, chunk: Chunk) -> None:
        """Stage one chunk, without the items that the service refuses."""
        if not self.stage:
            self.stage = self._transaction.open_stage(self._options.stage_ttl_ms)
        while chunk.specs:
            try:
                answer = self._transaction.put(self.stage, chunk.tube, chunk.specs)
            except FeedRefused as error:
                chunk = self._without_refused(chunk, error)
                continue
            for item in answer.errors:
                row, reason = chunk.rows[item.item], reason_name(item.error)
                self._rows.rejects.append(Reject(row, reason, item.error.message))
            self.tasks += len(chunk.specs) - len(answer.errors)
            return

    def _without_refused(self, chunk: Chunk, error: FeedRefused) -> Chunk:
        """Reject the rows that make a request invalid; return the other rows."""
        call = refusal(error)
        reason, _ = error_info(call)
        wrong: dict[int, str] = {}
        for path, description in field_violations(call):
            found = ITEM.match(path)
            if found:
                wrong.setdefault(int(found[1]), f"{path[found.end() :].lstrip('.')}: {description}")
        if reason == "TUBE_NOT_FOUND":
            wrong = dict.fromkeys(range(len(chunk.specs)), f"there is no tube {chunk.tube}")
        if not wrong:
            raise error
        kept = Chunk(chunk.tube)
        for place, (spec, row) in enumerate(zip(chunk.specs, chunk.rows, strict=True)):
            if place in wrong:
                self._rows.rejects.append(Reject(row, reason, wrong[place]))
            else:
                kept.specs.append(spec)
                kept.rows.append(row)
        return kept

    def _check_rejects(self) -> None:
        rejects = self._rows.rejects
        if rejects and not self._options.rejects:
            first = rejects[0]
            raise TasksRefused(
                f"{first.reason}: {first.message}; set the option rejects to write such rows into"
                " a folder"
            )
        size = sum([len(one.row.get("payload", b"")) for one in rejects])
        if len(rejects) > REJECTS_MAX or size > REJECT_BYTES_MAX:
            raise TasksRefused(
                f"{len(rejects)} rows of one Spark task with {size} bytes are refused; the maximum"
                f" is {REJECTS_MAX} rows and {REJECT_BYTES_MAX} bytes. The last reason is"
                f" {rejects[-1].reason}: {rejects[-1].message}"
            )


def reason_name(error: Error) -> str:
    """Return the name of the reason of a refused item."""
    return type(error).Reason.Name(error.reason)


def stage_rows(
    options: SinkOptions, version: int, query: str, batches: Iterator[pa.RecordBatch]
) -> StageMessage:
    """Stage the rows of one Spark task; after a failure, delete the stage."""
    app = options.app or query
    with FeedClient(options.connection.endpoints, options.connection) as client:
        transaction = Transaction(client, app, version, query)
        staged = StageWriter(options, transaction)
        try:
            staged.write(batches)
        except BaseException:
            transaction.delete_stages([staged.stage] if staged.stage else [])
            raise
    return StageMessage(app, version, query, staged.stage, staged.tasks, staged.rejects)


def commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Publish the staged tasks of all Spark tasks, once per version.

    Raises:
        TransactionRefused, TransactionReused: see `Transaction.commit`.
    """
    staged = [one for one in messages if isinstance(one, StageMessage)]
    stages = [one.stage for one in staged if one.stage]
    rejects = [reject for one in staged for reject in one.rejects]
    if not stages and not rejects:
        return
    app, version, query = staged[0].app, staged[0].version, staged[0].query
    assert all((one.app, one.version, one.query) == (app, version, query) for one in staged)
    tasks = sum(one.tasks for one in staged)
    with FeedClient(options.connection.endpoints, options.connection) as client:
        transaction = Transaction(client, app, version, query)
        is_new = not transaction.is_committed()
        if is_new and rejects:
            # Import Parquet only if it is needed; it is slow to import.
            from taskraft_pipeline.sink.rejected_rows import (  # noqa: PLC0415 - see above
                write_rejects,
            )

            write_rejects(options.rejects, app, version, rejects)
        if is_new:
            is_new = transaction.commit(stages, tasks, options.txn_ttl_ms)
        if not is_new:
            transaction.delete_stages(stages)
    log.info("version %s of %s: %s tasks, new: %s", version, app, tasks, is_new)


def abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete the staged tasks of all Spark tasks; no effect on a committed version."""
    staged = [one for one in messages if isinstance(one, StageMessage) and one.stage]
    if not staged:
        return
    with FeedClient(options.connection.endpoints, options.connection) as client:
        transaction = Transaction(client, staged[0].app, staged[0].version, staged[0].query)
        transaction.delete_stages([one.stage for one in staged])


class SinkBatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query as tasks."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        # Without a name, each run is an application of its own.
        self._app = options.app or f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one Spark task; runs in an executor."""
        options = replace(self._options, app=self._app)
        return stage_rows(options, options.version, "", iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the staged tasks."""
        commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the staged tasks."""
        abort(self._options, messages)


class SinkStreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a streaming query as tasks; the version is the number of the batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one Spark task; runs in an executor."""
        context = TaskContext.get()
        assert context is not None, "write runs in a Spark task"
        version, query = context.getLocalProperty(BATCH_ID), context.getLocalProperty(QUERY_ID)
        assert version is not None, "Spark names the batch"
        assert query is not None, "Spark names the query"
        return stage_rows(self._options, int(version), query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the staged tasks of a batch."""
        commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete the staged tasks of a batch."""
        abort(self._options, messages)
