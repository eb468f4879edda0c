"""The commands that change the queue, and what each of them answers."""
