"""Build the wheels of a release from a clean clone, and check them in empty environments."""
