"""Read the queue and execute commands, for the handlers of all services."""
