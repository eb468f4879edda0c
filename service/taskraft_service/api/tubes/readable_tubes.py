"""Select the tubes that a request names and that its caller may read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import ALL_TUBES, Verb
from taskraft_service.api.rpc.request_steps import RequestSteps
from taskraft_service.languages.patterns import PatternSet
from taskraft_service.queue.queue import Queue


async def readable_tubes(
    queue: Queue, wanted: Sequence[str], caller: Caller, steps: RequestSteps
) -> Sequence[str]:
    """Return the requested tubes that the caller may read, in order of name.

    A caller with the permission on all tubes is not checked per tube.

    Raises:
        CallRefused: TOO_MANY_STEPS.
    """
    if not wanted and caller.may(Verb.READ, ALL_TUBES):
        return queue.tube_names()
    patterns = PatternSet(wanted or (ALL_TUBES,))
    return await steps.matching(queue.tube_names(), patterns, partial(caller.may, Verb.READ))
