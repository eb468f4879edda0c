"""Hold the programs behind the Makefile: environments, stubs, locked versions, manifests."""
