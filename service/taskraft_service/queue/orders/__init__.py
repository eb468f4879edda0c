"""Orders: which of the ready tasks of a tube, or of several, comes next."""
