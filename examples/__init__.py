"""Three applications to copy from; each folder has a README."""
