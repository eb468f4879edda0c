"""Read the change feed of taskraft with Spark: data source, journal, report."""
