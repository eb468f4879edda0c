"""The change feed: one event for each transition, in dense partitions."""
