"""Break the code on purpose, one place at a time, and report which test fails."""
