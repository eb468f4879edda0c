"""Keep the cluster time, and its offset to the wall clocks."""
