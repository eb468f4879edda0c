"""The Subscribe stream of TaskService."""
