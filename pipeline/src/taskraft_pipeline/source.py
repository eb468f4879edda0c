"""The Spark data source: ``spark.read`` and ``spark.readStream`` with the format "taskraft".

Spark starts several Python processes to find this class and to plan a query, and each imports this
module. The module therefore imports little, and imports the readers on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from taskraft_pipeline.options import parse
from taskraft_pipeline.schema import spark_schema

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.types import StructType

    from taskraft_pipeline.reader import ChangesReader, ChangesStreamReader


class ChangesSource(DataSource):
    """The data source "taskraft": one row per task transition."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "taskraft"

    def schema(self) -> str:
        """Return the columns that the option ``columns`` selects."""
        return spark_schema(self._parsed.columns)

    def reader(self, schema: StructType) -> ChangesReader:
        """Return the reader for a batch query."""
        from taskraft_pipeline.reader import ChangesReader  # noqa: PLC0415 - see the module

        return ChangesReader(self._parsed)

    def streamReader(self, schema: StructType) -> ChangesStreamReader:
        """Return the reader for a streaming query."""
        from taskraft_pipeline.reader import ChangesStreamReader  # noqa: PLC0415 - see the module

        return ChangesStreamReader(self._parsed)
