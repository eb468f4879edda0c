"""The reader of the data source for ``read=tasks``: the current tasks at one revision.

The snapshot is opened when Spark plans the query, so each action on one DataFrame reads the same
snapshot. A node keeps the snapshot for some time after the last read; see ``snapshotTtl``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.schema import PAYLOAD
from taskraft_pipeline.task_snapshot import TaskRange, open_snapshot, read_range, split_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from taskraft.v1.task_pb2 import Task
    from taskraft_pipeline.options import Options

BATCH_TASKS: Final = 5_000
"""Minimum number of rows of a record batch, except for the last one and for large payloads."""
BATCH_BYTES: Final = 16 * 1024 * 1024
"""Size of the payloads at which a record batch is complete."""


@dataclass(slots=True, frozen=True)
class TasksPartition(InputPartition):
    """The work of one Spark task: ranges of a snapshot, and the node that keeps the snapshot."""

    snapshot_id: str
    endpoint: str
    revision: int
    ranges: tuple[TaskRange, ...]


class TasksReader(DataSourceReader):
    """Reads a snapshot of the current tasks."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Open a snapshot, and divide it among Spark tasks."""
        found = open_snapshot(self._options)
        return [
            TasksPartition(found.snapshot_id, found.endpoint, found.revision, pieces)
            for pieces in split_ranges(found.ranges, self._options.events_per_task)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the work of one Spark task; runs in an executor."""
        if not isinstance(partition, TasksPartition):
            return  # Spark's placeholder for a query without partitions
        # Import Arrow only in executors; the processes that plan a query do not need it.
        from taskraft_pipeline.task_columns import task_batch  # noqa: PLC0415 - in executors only

        columns = self._options.columns
        has_payload = PAYLOAD in columns
        tasks: list[Task] = []
        payload_bytes = 0
        with FeedClient((partition.endpoint,), self._options) as client:
            for one in partition.ranges:
                for part in read_range(client, partition.snapshot_id, one, has_payload=has_payload):
                    tasks += part.tasks
                    payload_bytes += sum([len(task.spec.payload) for task in part.tasks])
                    if len(tasks) >= BATCH_TASKS or payload_bytes >= BATCH_BYTES:
                        yield task_batch(tasks, columns, partition.revision)
                        tasks, payload_bytes = [], 0
        if tasks:
            yield task_batch(tasks, columns, partition.revision)
