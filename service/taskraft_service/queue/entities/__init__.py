"""Values that every layer of the queue uses; this package is the lowest layer."""
