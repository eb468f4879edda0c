"""Writing the state to the store, opening it, and hashing it."""
