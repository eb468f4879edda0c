"""Sessions: they group the leases of a consumer and outlive its connection."""
