"""State of the queue in RocksDB, snapshots of it, and the free disk space."""
