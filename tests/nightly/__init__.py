"""Run what is too long for a change, and print one table."""
