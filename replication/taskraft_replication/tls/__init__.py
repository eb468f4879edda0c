"""Read certificates from files, and notice when they are renewed."""
