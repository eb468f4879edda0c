"""Define the stored keys, and the indexes that keep part of their content in the store."""
