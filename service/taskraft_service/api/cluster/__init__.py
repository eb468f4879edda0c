"""ClusterService."""
