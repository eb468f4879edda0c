"""KeepSessions with very many sessions and cancelled leases answers in slices, and is bounded."""

import pytest

from taskraft.v1 import session_service_pb2 as pb
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.request_steps import MESSAGE_STEPS, SLICE_STEPS
from taskraft_service.api.sessions import CANCELLED_AT_ONCE, SessionService
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.limits import CANCEL_TOKENS_MAX, SESSIONS_PER_KEEP_MAX
from taskraft_service.queue.operations.sessions import KeepResult
from tests.service.counted_calls import runs_of

ID = "00000000-0000-0000-0000-0000000000{:02x}"


class View:
    """A session whose labels are counted when a message is built."""

    name = owner = ""
    ttr_ms = expires_ms = taken = created_ms = 0

    def __init__(self, session_id, read_labels):
        self.session_id = session_id
        self.read_labels = read_labels

    @property
    def labels(self):
        return self.read_labels()


class Node:
    """A leader whose sessions have cancelled leases; counts what each run of the loop looks at."""

    def __init__(self, *leases):
        self.leases = {f"s{number}": count for number, count in enumerate(leases)}
        self.read = self.views = 0
        self.applied = self.queues = self

    async def execute_changed(self, _codec, _call, _request):
        views = [self.view_of(name) for name in self.leases]
        return AppliedCommand(1, 1, 0, KeepResult(views))

    def view_of(self, name):
        def labels():
            self.views += 1
            return ()

        return View(name, labels)

    @staticmethod
    def with_temporary_leases(views):
        return list(views)

    def cancelled(self, session_id, tokens_max):
        tokens = range(min(self.leases[session_id], tokens_max))
        self.read += len(tokens)
        return tokens

    def keep(self):
        """Return the answer, and the leases and sessions that each run of the loop looked at."""
        request = pb.KeepSessionsRequest(session_ids=[ID.format(1)])
        call = UnaryCall(request, request.SerializeToString(), None, ANONYMOUS, 0.0)
        runs, answer = runs_of(SessionService(self, self).keep_sessions(call), self._looked_at)
        return answer, runs

    def _looked_at(self, run):
        before = self.read, self.views
        run()
        return self.read - before[0], self.views - before[1]


def test_cancelled_leases_of_many_sessions_are_read_in_slices():
    answer, runs = Node(*[99] * SESSIONS_PER_KEEP_MAX).keep()
    assert len(answer.cancel_tokens) == 99 * SESSIONS_PER_KEEP_MAX
    assert max(read for read, _ in runs) < CANCELLED_AT_ONCE + 99


def test_messages_of_many_sessions_are_built_in_slices():
    answer, runs = Node(*[0] * SESSIONS_PER_KEEP_MAX).keep()
    assert len(answer.sessions) == SESSIONS_PER_KEEP_MAX
    assert max(views for _, views in runs) == SLICE_STEPS // MESSAGE_STEPS


@pytest.mark.parametrize(
    ("leases", "named"),
    [
        ((CANCEL_TOKENS_MAX + 1,), (CANCEL_TOKENS_MAX,)),
        ((CANCEL_TOKENS_MAX, 7), (CANCEL_TOKENS_MAX // 2, 7)),
        ((7, CANCEL_TOKENS_MAX), (7, CANCEL_TOKENS_MAX - 7)),
    ],
)
def test_an_answer_names_a_limited_number_and_some_of_each_session(leases, named):
    answer, _ = Node(*leases).keep()
    assert list(answer.cancel_tokens) == [token for count in named for token in range(count)]
