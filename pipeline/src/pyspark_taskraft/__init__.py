"""Register ``format("taskraft")``; Spark looks for data sources in packages named ``pyspark_*``."""

from taskraft_pipeline.source import TaskraftSource as DefaultSource

__all__ = ["DefaultSource"]
