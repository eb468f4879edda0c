"""What a drill counts and records: unavailability, outcomes of calls, and lines of the history."""

import grpc
import grpc.aio
import pytest

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused, status_metadata
from tests.drill.caller import answer_of
from tests.drill.drill_run import longest_silence_ns
from tests.drill.history import HistoryRecorder, read_history


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
