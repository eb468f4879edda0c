"""The methods of TubeService."""
