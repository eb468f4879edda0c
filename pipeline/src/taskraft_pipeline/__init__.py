"""Read taskraft's change feed with Spark: data source, journal and report."""
