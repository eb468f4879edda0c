"""The queue's state on disk: RocksDB behind the ordered ``Store`` that the queue sees."""
