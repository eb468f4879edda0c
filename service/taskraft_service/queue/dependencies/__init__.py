"""Let tasks wait for the end of others."""
