"""The queue: a pure, deterministic state machine of tubes, tasks and sessions.

This package never reads a clock, random numbers or files. Commands and times are arguments; results
and events are return values. Equal commands give byte-equal state on every replica.
"""
