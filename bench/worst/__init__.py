"""The most expensive request of each method, and what it costs the event loop of a node."""
