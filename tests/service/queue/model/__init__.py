"""A queue as naive as can be, to compare the real one with: lists that are searched for all."""
