"""Replay data-driven Raft traces on the core and compare the results record by record.

``python -m tests.raft_traces DIR`` runs every ``*.txt`` below DIR. The format is that of
etcd-io/raft's own tests, whose files are data. Log lines are compared only for the facts they state
(a role taken, a configuration used, a snapshot restored), not for their words.
"""
