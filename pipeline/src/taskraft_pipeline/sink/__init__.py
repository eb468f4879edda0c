"""The sink of the data source: rows become tasks, exactly once, in batch and streaming queries."""
