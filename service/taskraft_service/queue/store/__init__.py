"""Define the keys of the store, and indexes that are partly in memory and partly in the store."""
