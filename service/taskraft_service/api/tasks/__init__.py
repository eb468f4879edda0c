"""The methods of TaskService, except Subscribe."""
