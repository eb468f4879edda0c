"""What a drill counts and records: unavailability, outcomes of calls, and lines of the history."""

from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from bench.worst.calls import methods_of_the_contract
from taskraft.v1 import error_pb2
from taskraft_service.access.caller import AuthenticatedCaller, Credential, PermissionDenied
from taskraft_service.access.permission_rules import RULES, required_permissions
from taskraft_service.access.permissions import ANY_TUBE, Grant, Permissions
from taskraft_service.access.principals import Principal, Principals
from taskraft_service.api.rpc.status import CallRefused, status_metadata
from tests.drill.caller import answer_of
from tests.drill.drill_access import ROLES
from tests.drill.drill_run import Result, longest_silence_ns
from tests.drill.history import HistoryRecorder, read_history
from tests.drill.hostile import Findings, Intruder, foreign_requests
from tests.drill.judge import Evidence, Verdict


@pytest.mark.parametrize(
    ("acknowledged", "excused", "expected"),
    [
        ([], [], 0),
        ([1, 2, 9, 10], [], 7),
        ([1, 2, 9, 10], [(3, 8)], 2),
        ([1, 2, 9, 10], [(0, 20)], 0),
        ([1, 5, 9], [(4, 6)], 3),
    ],
)
def test_the_longest_silence_leaves_out_times_without_a_majority(acknowledged, excused, expected):
    assert longest_silence_ns(acknowledged, excused) == expected


def test_a_history_has_an_invocation_before_each_answer(tmp_path):
    recorder = HistoryRecorder(tmp_path / "h.jsonl")
    one = recorder.invoke("p", "put", "n1", tube="t", uid="u")
    other = recorder.invoke("p", "put", "n1", tube="t", uid="v")
    other.info("unavailable")
    one.ok(id=1, rev=5)
    recorder.remark("nemesis", "kill", hit=["n1"])
    recorder.close()
    history = read_history(recorder.path)
    first, second = history.operations
    assert (first.outcome, first.answer, first.node) == ("ok", {"id": 1, "rev": 5}, "n1")
    assert (second.outcome, second.error) == ("info", "unavailable")
    assert first.invoked_ns < second.invoked_ns < first.ended_ns < second.ended_ns
    assert [line["f"] for line in history.faults] == ["kill"]


def error_of(code, details="", reason=None):
    sent = () if reason is None else status_metadata(CallRefused(reason, "refused"))
    trailing = grpc.aio.Metadata(*sent)
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details)


Code, Reason = grpc.StatusCode, error_pb2.Error


@pytest.mark.parametrize(
    ("error", "outcome", "text"),
    [
        (error_of(Code.FAILED_PRECONDITION, "", Reason.LEASE_STALE), "fail", "stale_token"),
        (error_of(Code.NOT_FOUND, "", Reason.SESSION_NOT_FOUND), "fail", "session_expired"),
        (error_of(Code.UNAVAILABLE, "", Reason.NO_LEADER), "fail", "no_leader"),
        (error_of(Code.UNAVAILABLE, "", Reason.COMMIT_UNKNOWN), "info", "commit_unknown"),
        (error_of(Code.INTERNAL, "", Reason.INTERNAL_ERROR), "info", "internal_error"),
        (error_of(Code.UNAVAILABLE, "failed to connect to all addresses"), "fail", "not sent"),
        (error_of(Code.UNAVAILABLE, "Socket closed"), "info", "unavailable"),
        (error_of(Code.DEADLINE_EXCEEDED, "Deadline Exceeded"), "info", "deadline_passed"),
    ],
)
def test_only_an_answer_that_proves_it_says_no_effect(error, outcome, text):
    answer = answer_of(error)
    assert (answer.outcome, answer.error) == (outcome, text)


def stranger():
    permissions = Permissions([Grant(role, ("own.*",)) for role in ROLES])
    known = Principal("stranger", permissions, frozenset({"c"}))
    current = SimpleNamespace(version=1, principals=Principals({"stranger": known}))
    return AuthenticatedCaller("stranger", Credential("c"), current)


REQUESTS = list(foreign_requests("work"))


@pytest.mark.parametrize(
    ("path", "request_"), [(path, request) for path, request, _ in REQUESTS], ids=str
)
def test_the_hostile_principal_lacks_the_rights_for_each_request(path, request_):
    del path
    with pytest.raises(PermissionDenied):
        stranger().authorize(request_)


def test_the_hostile_principal_tries_each_method_that_needs_a_right_on_a_name():
    tried = {path.rpartition("/")[2] for path, _, _ in REQUESTS}
    free = {
        name
        for kind in RULES
        if not {right for _, right in required_permissions(kind())} - {ANY_TUBE}
        for name in [kind.DESCRIPTOR.name.removesuffix("Request")]
    }
    assert tried >= {"PutTasks", "TakeTasks", "Subscribe", "ReadChanges", "SaveSnapshot"}
    methods = {method.name for method in methods_of_the_contract()}
    assert methods - tried - free - {"ExecuteBatch", "GetMetricSpec", "StreamIsActive"} == set()


def test_an_answer_to_a_hostile_caller_makes_a_result_wrong():
    verdict = Verdict((), Evidence(1, 0, 1, 1, 0))
    assert Result("d", 1, 0.0, verdict, 3.0).is_right
    assert not Result("d", 1, 0.0, verdict, 3.0, breaches=("stranger: PutTasks",)).is_right


async def answer(message):
    if isinstance(message, grpc.aio.AioRpcError):
        raise message
    return message


class Idle(Intruder):
    name = "idle"

    async def attempt(self, node):
        pass


async def test_only_an_answer_of_a_node_counts_as_a_refusal():
    findings = Findings()
    scene = SimpleNamespace(access=SimpleNamespace())
    caller = Idle(scene, SimpleNamespace(seed=1), findings)
    await caller.expect_refusal("a", answer(error_of(Code.PERMISSION_DENIED)))
    await caller.expect_refusal("b", answer(error_of(Code.UNAVAILABLE)))
    await caller.expect_refusal("c", answer(b""))
    assert (findings.refused.total(), findings.unanswered) == (1, 1)
    assert [breach.split(": ")[1] for breach in findings.breaches] == ["c"]
