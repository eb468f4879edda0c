"""Report on the tasks of a feed: computed by Spark, printed as tables, charts and a page."""
