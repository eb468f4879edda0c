"""Hold the tests; each folder mirrors a part of the repository."""
