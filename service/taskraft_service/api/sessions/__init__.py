"""The methods of SessionService."""
