"""Binary records of tasks, groups and tube options."""
