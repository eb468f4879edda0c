"""The Spark data source "taskraft": reads and writes, in batch and streaming queries.

Spark starts several Python processes to find this class and to plan a query, and each imports this
module. The module therefore imports little, and imports the readers and writers on demand.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from taskraft_pipeline.errors import OptionInvalid
from taskraft_pipeline.options import Options, Read, parse
from taskraft_pipeline.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from taskraft_pipeline.reader import ChangesReader, ChangesStreamReader
    from taskraft_pipeline.sink.sink_options import SinkOptions
    from taskraft_pipeline.sink.writer import SinkBatchWriter, SinkStreamWriter
    from taskraft_pipeline.tasks_reader import TasksReader
    from taskraft_pipeline.work_reader import WorkReader


class TaskraftSource(DataSource):
    """The data source "taskraft".

    A read has one row per task transition, per current task, or per task to work on. A write puts a
    task for each row. Reads and writes have different options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "taskraft"

    def _read_options(self) -> Options:
        return parse(self.options)

    def schema(self) -> str:
        """Return the columns that the option ``columns`` selects."""
        options = self._read_options()
        return spark_schema(options.columns, options.read.types)

    def reader(self, schema: StructType) -> ChangesReader | TasksReader:
        """Return the reader for a batch query.

        Raises:
            OptionInvalid: the query works on tasks, which only a streaming query can.
        """
        options = self._read_options()
        if options.read is Read.WORK:
            raise OptionInvalid("read=work is for streaming queries")
        if options.read is Read.TASKS:
            from taskraft_pipeline.tasks_reader import TasksReader

            return TasksReader(options)
        from taskraft_pipeline.reader import ChangesReader

        return ChangesReader(options)

    def streamReader(self, schema: StructType) -> ChangesStreamReader | WorkReader:
        """Return the reader for a streaming query.

        Raises:
            OptionInvalid: the query reads tasks, which only a batch query can.
        """
        options = self._read_options()
        if options.read is Read.TASKS:
            raise OptionInvalid("read=tasks is for batch queries; a stream reads changes")
        if options.read is Read.WORK:
            from taskraft_pipeline.work_reader import WorkReader

            return WorkReader(options)
        from taskraft_pipeline.reader import ChangesStreamReader

        return ChangesStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> SinkBatchWriter:  # noqa: FBT001 - Spark's interface
        """Return the writer for a batch query; the save mode must be "append"."""
        from taskraft_pipeline.sink.writer import SinkBatchWriter

        return SinkBatchWriter(self._sink_options(schema, is_overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> SinkStreamWriter:  # noqa: FBT001 - Spark's interface
        """Return the writer for a streaming query; the output mode must be "append"."""
        from taskraft_pipeline.sink.writer import SinkStreamWriter

        return SinkStreamWriter(self._sink_options(schema, is_overwrite=overwrite))

    def _sink_options(self, schema: StructType, *, is_overwrite: bool) -> SinkOptions:
        """Return the options of a write, after a check of the columns.

        Raises:
            OptionInvalid: an option, a column or the mode is not suitable.
        """
        from taskraft_pipeline.sink.sink_options import parse_sink
        from taskraft_pipeline.sink.task_rows import check_columns

        options = parse_sink(self.options)
        if is_overwrite:
            raise OptionInvalid('tasks can only be added: use mode("append")')
        check_columns(
            {field.name: field.dataType.simpleString() for field in schema.fields}, options.tube
        )
        return options
