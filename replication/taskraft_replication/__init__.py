"""Keep a log of entries equal on all members of a group, and apply it to a state machine."""
