"""Handle ListFailures: counted failures, from the memory of the called node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from taskraft.v1 import tube_service_pb2 as pb
from taskraft_service.access.permissions import Verb
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.paging import list_fingerprint, page_of
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.limits import PAGE_SIZE_MAX
from taskraft_service.machine.failure_counter import FailureCounter
from taskraft_service.machine.failure_counts import (
    FINGERPRINTS_MAX,
    OTHERS,
    TUBES_MAX,
    FailureRow,
    TubeFailures,
)
from taskraft_service.queue.entities.event_cause import normalised
from taskraft_service.turns import next_turn

ROW_STEPS: Final = 100
"""Number of steps that stand for building one row of an answer, with its normalised message."""
_Row = tuple[str, TubeFailures, FailureRow]


class FailuresHandler:
    """The handler of ListFailures.

    Args:
        counter: counts the failures on this node.
        node: name of this node.
        wall_now_ms: returns the wall time of the cluster.
    """

    def __init__(self, counter: FailureCounter, node: str, wall_now_ms: Callable[[], int]) -> None:
        self._counter = counter
        self._node = node
        self._wall_now_ms = wall_now_ms

    def method(self) -> AnyUnaryMethod:
        """Return the method ListFailures with its handler."""
        return UnaryMethod(
            "ListFailures", pb.ListFailuresRequest, ExecutionSite.ANY_NODE, self.list_failures
        )

    async def list_failures(
        self, call: UnaryCall[pb.ListFailuresRequest]
    ) -> pb.ListFailuresResponse:
        """Return a page of the counted failures.

        All failures that this node had applied before the call are counted first.

        Raises:
            CallRefused: INVALID_FIELD, TOO_MANY_STEPS.
        """
        request = call.request
        _check(request)
        for _ in self._counter.read():
            await next_turn()
        page, next_token = page_of(
            await self._selected(call),
            _key,
            request.page_size or PAGE_SIZE_MAX,
            request.page_token,
            list_fingerprint("failures", str(request.since_ms), *request.tubes),
        )
        now_ms = self._wall_now_ms()
        return pb.ListFailuresResponse(
            failures=await call.steps.in_slices(page, lambda row: _message(row, now_ms), ROW_STEPS),
            next_page_token=next_token,
            node=self._node,
            counted_since_ms=self._counter.counts.since_ms,
            now_ms=now_ms,
        )

    async def _selected(self, call: UnaryCall[pb.ListFailuresRequest]) -> Sequence[_Row]:
        """Return the requested rows that the caller may read, in order of tube and fingerprint."""
        request, counts = call.request, self._counter.counts
        names: Sequence[str] = sorted(set(request.tubes))
        if not names:
            names = await call.steps.select(
                counts.tube_names(), lambda name: call.caller.may(Verb.READ, name), 1
            )
        rows: list[_Row] = []

        def add(name: str) -> None:
            found = counts.tube(name)
            if found is not None and found.last_ms >= request.since_ms:
                rows.extend(
                    (name, found, row) for row in found.rows() if row.last_ms >= request.since_ms
                )

        await call.steps.in_slices(names, add, FINGERPRINTS_MAX)
        return rows


def _check(request: pb.ListFailuresRequest) -> None:
    violations = Violations()
    violations.check_count("tubes", request.tubes, TUBES_MAX)
    for place, name in enumerate(request.tubes):
        violations.check_tube(f"tubes[{place}]", name)
    violations.check_not_negative("since_ms", request.since_ms)
    violations.check_page(request.page_size, request.page_token)
    violations.raise_if_any()


def _key(row: _Row) -> str:
    """Return the key of a row in a page token; keys are ordered as tubes and fingerprints are."""
    name, _, counted = row
    return f"{name}\0{counted.fingerprint + (1 << 63):016x}"


def _message(row: _Row, now_ms: int) -> pb.CountedFailure:
    name, tube, counted = row
    message = counted.message.decode()
    return pb.CountedFailure(
        tube=name,
        fingerprint=counted.fingerprint,
        reason=counted.reason.decode(),
        message="" if counted.fingerprint == OTHERS else normalised(message),
        count=counted.count,
        given_up=counted.given_up,
        hours=counted.hours(now_ms),
        first_ms=counted.first_ms,
        last_ms=counted.last_ms,
        task_id=counted.task_id,
        last_message=message,
        counted_since_ms=tube.since_ms,
    )
