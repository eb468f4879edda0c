"""The queue: a pure, deterministic state machine of tubes, tasks and sessions.

Nothing here reads a clock, draws a random number or touches a file. Commands and times come in as
values; results and events go out as values. Equal commands give byte-equal state on every replica.
"""
