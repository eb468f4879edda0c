"""The reader of the data source for ``read=work``: a streaming query that works on tasks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.work_stream import WorkLease, WorkOffset, WorkStream, leased_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from taskraft_pipeline.options import Options


@dataclass(slots=True, frozen=True)
class WorkPartition(InputPartition):
    """The work of one Spark task: the leases of one take."""

    leases: tuple[WorkLease, ...]


class WorkReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Takes tasks batch by batch, and acknowledges the tasks of committed batches."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._opened: WorkStream | None = None

    def _stream(self) -> WorkStream:
        if self._opened is None:
            client = FeedClient(self._options.endpoints, self._options)
            self._opened = WorkStream(self._options, client, time.monotonic)
        return self._opened

    def initialOffset(self) -> dict[str, object]:
        """Return the offset of a query that has taken no task."""
        return WorkOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark passes back to ``latestOffset``."""
        return ReadMaxRows(self._options.tasks_per_trigger_max)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        """Return the offset at which the next batch ends."""
        tasks_max = self._options.tasks_per_trigger_max
        if isinstance(limit, ReadMaxRows):
            tasks_max = min(tasks_max, limit.max_rows)
        else:
            assert isinstance(limit, ReadAllAvailable), limit
        return self._stream().latest(WorkOffset.from_json(start), tasks_max).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end, even if new tasks are put all the time."""
        self._stream().fix_end()

    def partitions(
        self,
        start: dict[str, object],
        end: dict[str, object],
    ) -> Sequence[InputPartition]:
        """Give each take to one Spark task."""
        return [WorkPartition(take) for take in WorkOffset.from_json(end).takes]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the tasks of one take that are still leased; runs in an executor."""
        if not isinstance(partition, WorkPartition):
            return  # Spark's placeholder for a query without partitions
        # Import Arrow only in executors; the process that plans a query does not need it.
        from taskraft_pipeline.task_columns import task_batch  # noqa: PLC0415 - in executors only

        with FeedClient(self._options.endpoints, self._options) as client:
            tasks, revision = leased_tasks(client, partition.leases)
        if tasks:
            yield task_batch(tasks, self._options.columns, revision)
