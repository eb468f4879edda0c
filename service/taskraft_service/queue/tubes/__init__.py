"""Tubes: their options, counters and limits, and how they come, change and go."""
