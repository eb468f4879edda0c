"""The programs that the Makefile runs: environments, stubs, locked versions, manifests."""
