"""Tables about queues, computed from a journal by date, and views on them for SQL."""
