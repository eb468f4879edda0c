"""Decode each kind of command from the message that the log holds for it."""
