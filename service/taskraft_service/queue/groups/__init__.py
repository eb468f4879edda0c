"""Groups: tasks that start together, and what follows when all of them have ended."""
