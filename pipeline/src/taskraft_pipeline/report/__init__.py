"""Report what happened to the tasks of a feed: numbers by Spark, tables, a picture, a page."""
