"""TubeService."""
