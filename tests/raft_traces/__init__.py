"""Replay data-driven Raft traces on the core and compare what happens, record by record.

``python -m tests.raft_traces DIR`` runs every ``*.txt`` below DIR. The format is the one of
etcd-io/raft's own tests, whose files are data; their log lines are compared only for the facts they
state (a role taken, a configuration switched to, a snapshot restored), not for their words.
"""
