"""Count calls of functions, so that a test of costs does not depend on the machine."""

import asyncio
import gc
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

    was_enabled = gc.isenabled()
    gc.disable()  # the end of objects that other tests left would count
    sys.setprofile(count if names is None else count_named)
    try:
        yield counted
    finally:
        sys.setprofile(None)
        if was_enabled:
            gc.enable()


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


def runs_of(coroutine, measure=calls_of):
    """Run a coroutine that waits only for turns; return what each run costs, and the result.

    Args:
        coroutine: the coroutine.
        measure: calls its argument, which is one run, and returns what the run costs.
    """
    runs, results, turns = [], [], []

    def run():
        try:
            turns.append(coroutine.send(None))
        except StopIteration as end:
            results.append(end.value)

    async def drive():
        while not results:
            runs.append(measure(run))
            turn = turns.pop() if turns else None
            if turn is None:
                await asyncio.sleep(0)
            else:
                turn._asyncio_future_blocking = False  # as a task does
                await turn

    asyncio.run(drive())
    return runs, results[0]
