"""The methods of ClusterService."""
