"""The methods of GroupService."""
