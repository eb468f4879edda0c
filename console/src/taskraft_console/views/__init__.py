"""Text for people: numbers, durations, times and payloads."""
