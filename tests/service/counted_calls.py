"""Count calls of functions, so that a test of costs does not depend on the machine."""

import asyncio
import sys


def calls_of(function, *arguments):
    """Return the number of Python and C functions that a call enters."""
    calls = 0

    def count(_frame, event, _called):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return calls


async def calls_of_turns(turns):
    """Return the number of Python and C functions that the event loop enters in its next turns."""
    calls = 0

    def count(_frame, event, _called):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for _ in range(turns):
            await asyncio.sleep(0)
    finally:
        sys.setprofile(None)
    return calls


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
