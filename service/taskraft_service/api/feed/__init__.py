"""The methods of FeedService."""
