"""FeedService."""
