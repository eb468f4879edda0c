"""Prometheus metrics of a node; names begin with ``taskraft_`` and use base units.

Counters are kept by the components and read at each scrape; only histograms are updated as events
happen. No label contains a task. Tubes are labels up to a limit; the other tubes are summed.
Metrics of a Raft group have a ``group`` label, so that several groups fit into one process.
"""
