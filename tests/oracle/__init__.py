"""Replay recorded traces of tarantool/queue through a running service and compare step by step.

The traces are not part of this project; ``make oracle TRACES=<dir>`` names their folder. Only the
contract is used: the stubs of ``taskraft.v1`` over real connections to real node processes.
"""
