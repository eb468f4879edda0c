"""TaskService, except its Subscribe stream."""
