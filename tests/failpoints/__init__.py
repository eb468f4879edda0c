"""Inject faults at named failpoints: the wrappers of files, database and state machine.

The distributions contain no fault injection. Tests pass these wrappers to the code as arguments, or
start a process with ``python -m tests.failpoints``.
"""
