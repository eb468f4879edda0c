"""Read certificates from files, and detect when they are renewed."""
