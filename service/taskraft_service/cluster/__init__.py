"""Find one's place in the cluster: number, address, settings in force."""
