"""ListAudit examines a bounded number of acts in each run of the event loop."""

import pytest

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.cluster.audit import EXAMINED_AT_ONCE, EXAMINED_MAX, AuditHandlers
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.limits import PAGE_SIZE_MAX
from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.state.audit_table import AuditRecord
from tests.service.counted_calls import runs_of


class Reader:
    """A state with many acts on the tubes "even" and "odd"; counts the records that it read."""

    def __init__(self, acts):
        self.acts = acts
        self.read = 0
        self.applied = self

    async def queue(self, _consistency):
        return self

    def audit_records(self, before):
        for number in range(min(before, self.acts) - 1, -1, -1):
            self.read += 1
            act = ManagedAct("root", "", "DropTube", ("odd" if number % 2 else "even",), "")
            yield number, AuditRecord(number, number, 0, 0, act)

    def listed(self, **fields):
        """Return an answer, and the records that each run of the event loop read."""
        request = pb.ListAuditRequest(**fields)
        call = UnaryCall(request, request.SerializeToString(), None, ANONYMOUS, 0.0)
        runs, answer = runs_of(AuditHandlers(self).list_audit(call), self._read_in)
        return answer, runs

    def _read_in(self, run):
        before = self.read
        run()
        return self.read - before


@pytest.mark.parametrize(
    ("fields", "examined"),
    [
        ({}, PAGE_SIZE_MAX),
        ({"name": "odd"}, EXAMINED_MAX),
        ({"name": "none"}, EXAMINED_MAX),
    ],
)
def test_acts_are_examined_in_slices(fields, examined):
    answer, runs = Reader(3 * EXAMINED_MAX).listed(page_size=PAGE_SIZE_MAX, **fields)
    looks_ahead = examined // EXAMINED_AT_ONCE
    assert sum(runs) in (examined + looks_ahead, examined + looks_ahead - 1)
    assert max(runs) == EXAMINED_AT_ONCE + 1
    assert len(answer.records) == (0 if fields.get("name") == "none" else PAGE_SIZE_MAX)
    assert answer.next_page_token


@pytest.mark.parametrize("acts", [0, 1, EXAMINED_AT_ONCE, EXAMINED_MAX, EXAMINED_MAX + 1])
def test_all_pages_together_have_each_act_once(acts):
    found, token = [], ""
    while True:
        answer, _ = Reader(acts).listed(page_size=PAGE_SIZE_MAX, page_token=token, name="odd")
        found += [record.revision for record in answer.records]
        token = answer.next_page_token
        if not token:
            break
    assert found == [number for number in range(acts - 1, -1, -1) if number % 2]
