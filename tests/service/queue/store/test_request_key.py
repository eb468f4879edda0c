"""Requests have one effect within the scope of their request_id, and one effect in each scope."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.put import PUT
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.entries.encoded_command import encode_request, request_hash
from taskraft_service.entries.log_entry import decode_entry, encode_entry
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.store.idempotency import request_scope, without_scope
from tests.service.queue.memory_store import MemoryStore

PARTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=3)
TRIPLES = st.tuples(PARTS, PARTS, PARTS)


@given(TRIPLES, TRIPLES)
def test_different_triples_never_make_the_same_request_id(one, other):
    made = [
        request_scope(principal, client_id) + request_id
        for principal, client_id, request_id in (one, other)
    ]
    assert (made[0] == made[1]) is (one == other)
    assert without_scope(made[0]) == one[2]


def test_a_caller_without_principal_and_client_id_has_the_scope_of_older_records():
    assert request_scope("", "") == ""


WINDOW_MS = Limits().request_window_ms


@dataclass
class Known:
    """An earlier request: its content, its answer and when it was executed."""

    content: tuple[bytes, ...]
    ids: list[int]
    at_ms: int


class ScopedRequests(RuleBasedStateMachine):
    """Callers that count, against a model with one dictionary of whole keys.

    The model compares principal, client_id and request_id as they are, and contents instead of
    hashes. The requests pass through the log entry, as between a leader and a follower.
    """

    def __init__(self):
        super().__init__()
        self.store = MemoryStore()
        self.queue = Queue(self.store, Limits())
        self.index, self.now_ms = 0, 1_000_000
        self.known: dict[tuple[str, str, str], Known] = {}
        self.tasks = 0
        self.unwritten = []

    @initialize()
    def begin(self):
        self.apply(Startup(1, 0, "feed", 1), CreateTube("t", TubeKind.FIFO, TubeOptions()))

    def apply(self, *commands):
        self.index += 1
        self.unwritten.append((self.index, self.now_ms, commands))
        return self.queue.apply(self.index, self.now_ms, commands)

    @rule(
        principal=st.sampled_from(("", "a", "b")),
        client_id=st.sampled_from(("", "a", "b")),
        request_id=st.sampled_from(("1", "2", "a")),
        content=st.sampled_from(((b"x",), (b"x",), (b"y", b"z"))),
    )
    def put(self, principal, client_id, request_id, content):
        tasks = [task_pb2.TaskSpec(payload=payload) for payload in content]
        request = pb.PutTasksRequest(
            tube="t", tasks=tasks, request_id=request_id, client_id=client_id
        )
        raw = request.SerializeToString()
        key = RequestKey(request_hash(request, raw), request_scope(principal, client_id))
        entry = encode_entry(self.now_ms, [encode_request(PUT, request, raw, key)])
        (result,) = self.apply(*decode_entry(entry)[1])
        self.judge((principal, client_id, request_id), content, result)

    def judge(self, key, content, result):
        before = self.known.get(key)
        if before is not None and self.now_ms - before.at_ms >= WINDOW_MS:
            # The key is forgotten within the next windows; the number of ids tells.
            is_new = not isinstance(result, Refusal) and list(result.ids) != before.ids
            before = None if is_new else before
        if before is None:
            assert list(result.ids) == list(range(self.tasks + 1, self.tasks + 1 + len(content)))
            self.known[key] = Known(content, list(result.ids), self.now_ms)
            self.tasks += len(content)
        elif content == before.content:
            assert list(result.ids) == before.ids
        else:
            assert isinstance(result, Refusal)
            assert result.reason is Reason.REQUEST_ID_REUSED
            assert result.metadata == {"request_id": key[2]}

    @rule(passed=st.sampled_from((1, WINDOW_MS // 2, WINDOW_MS)))
    def wait(self, passed):
        self.now_ms += passed
        self.apply()

    @rule()
    def collect(self):
        self.store.write(self.queue.collect_writes())
        self.unwritten = []

    @rule()
    def crash_and_reopen(self):
        """Lose unwritten changes, and apply the entries of the log again."""
        self.queue = Queue(self.store, Limits())
        for index, now_ms, commands in self.unwritten:
            self.queue.apply(index, now_ms, commands)

    @invariant()
    def each_key_had_one_effect(self):
        assert self.queue.total_statistics().total == self.tasks


ScopedRequests.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestScopedRequests = ScopedRequests.TestCase
