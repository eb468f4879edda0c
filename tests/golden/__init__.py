"""Golden files of each version of each format; files may be added but never changed."""
