"""A data source that reads one range of the feed several times in one query.

The history of a slow queue is short, so one read of it would measure mostly the start of a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from taskraft_pipeline.feed import FeedNodes
from taskraft_pipeline.options import Options, parse
from taskraft_pipeline.reader import ChangesPartition, ChangesReader, plan
from taskraft_pipeline.source import TaskraftSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

TIMES = "times"
"""Option: how often the range is read. The other options are those of the data source."""


class RepeatedSource(TaskraftSource):
    """The data source "taskraft", with the option ``times``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "taskraft-repeated"

    def _read_options(self) -> Options:
        return parse({name: text for name, text in self.options.items() if name.lower() != TIMES})

    def reader(self, schema: StructType) -> RepeatedReader:
        """Return the reader for a batch query."""
        return RepeatedReader(self._read_options(), int(self.options[TIMES]))


class RepeatedReader(ChangesReader):
    """Reads a range of the feed several times.

    Args:
        options: options of the query.
        times: how often the range is read.
    """

    def __init__(self, options: Options, times: int) -> None:
        super().__init__(options)
        self._options, self._times = options, times

    def partitions(self) -> Sequence[InputPartition]:
        """Divide all reads of the range among Spark tasks."""
        found = [one for one in super().partitions() if isinstance(one, ChangesPartition)]
        *_, leader = addresses = found[0].endpoints
        whole = [one for work in found for one in work.ranges] * self._times
        return plan(self._options, found[0].feed_id, whole, FeedNodes(addresses, leader))
