"""Rolling upgrades between two builds: this tree, and the same tree with one more version."""
