"""Keep the log, the hard state and the snapshots of a group on disk."""
