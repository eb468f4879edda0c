"""Who calls, and what they may do: principals, roles on tubes, and the rule of every method."""
