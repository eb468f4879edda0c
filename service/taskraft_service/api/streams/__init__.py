"""The Subscribe method of TaskService."""
