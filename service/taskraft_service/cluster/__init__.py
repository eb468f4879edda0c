"""Identity of this node in its cluster, the members, and the effective settings."""
