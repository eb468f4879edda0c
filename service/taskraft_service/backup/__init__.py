"""Save the state of a cluster to a file, check the file, and restore a cluster from it."""
