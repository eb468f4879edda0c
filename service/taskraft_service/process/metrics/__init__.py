"""Show the node to Prometheus: names begin with taskraft_, units are base units.

Counts are kept where they arise and read when they are scraped; only what needs a distribution is
observed as it happens. No label names a task; tubes are labels up to a bound, the rest is one sum.
What belongs to a Raft group has a label with its number, so that several fit into one process.
"""
