"""The operations of producers, consumers and administrators on tasks."""
