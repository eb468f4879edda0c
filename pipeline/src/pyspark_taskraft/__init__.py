"""Make ``format("taskraft")`` known to Spark, which looks for packages called ``pyspark_*``."""

from taskraft_pipeline.source import ChangesSource as DefaultSource

__all__ = ["DefaultSource"]
