"""Count calls of functions, so that a test of costs does not depend on the machine."""

import asyncio
import sys
from contextlib import contextmanager
from types import SimpleNamespace


@contextmanager
def counted_calls(names=None):
    """Count the calls of functions in a block.

    The block gets an object whose field ``calls`` is the count so far.

    Args:
        names: names of C functions, only whose calls count; None: all Python and C functions count.
    """
    counted = SimpleNamespace(calls=0)

    def count(_frame, event, _called):
        counted.calls += event in ("call", "c_call")

    def count_named(_frame, event, called):
        counted.calls += event == "c_call" and called.__name__ in names

    sys.setprofile(count if names is None else count_named)
    try:
        yield counted
    finally:
        sys.setprofile(None)


def calls_of(function, *arguments):
    """Return the number of Python and C functions that a call enters."""
    with counted_calls() as counted:
        function(*arguments)
    return counted.calls


async def calls_of_turns(turns):
    """Return the number of Python and C functions that the event loop enters in its next turns."""
    with counted_calls() as counted:
        for _ in range(turns):
            await asyncio.sleep(0)
    return counted.calls


def runs_of(coroutine):
    """Run a coroutine that waits for nothing; return the calls of each run, and the result."""
    runs, results = [], []

    def run():
        try:
            coroutine.send(None)
        except StopIteration as end:
            results.append(end.value)

    while not results:
        runs.append(calls_of(run))
    return runs, results[0]
