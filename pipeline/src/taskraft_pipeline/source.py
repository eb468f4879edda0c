"""Offer the change feed to Spark: ``spark.read`` and ``spark.readStream`` with format "taskraft".

Spark starts several Python processes to look this class up and to make a query of it, each of which
imports this module; so it imports little, and the readers when they are asked for.
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
    """The data source "taskraft": one row for each transition of each task."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse(options)

    @classmethod
    def name(cls) -> str:
        """Return what users write as the format."""
        return "taskraft"

    def schema(self) -> str:
        """Return the columns that the option ``columns`` asks for."""
        return spark_schema(self._parsed.columns)

    def reader(self, schema: StructType) -> ChangesReader:
        """Return the reader of a batch."""
        from taskraft_pipeline.reader import ChangesReader  # noqa: PLC0415 - see the module

        return ChangesReader(self._parsed)

    def streamReader(self, schema: StructType) -> ChangesStreamReader:
        """Return the reader of a stream."""
        from taskraft_pipeline.reader import ChangesStreamReader  # noqa: PLC0415 - see the module

        return ChangesStreamReader(self._parsed)
