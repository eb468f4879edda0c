"""A real API server of Kubernetes, with pods that are processes in network namespaces."""
