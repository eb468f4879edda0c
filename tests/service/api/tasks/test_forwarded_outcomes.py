"""A waiting put whose node loses leadership asks the next leader with the caller's permissions.

Calls wait for a bounded number of tasks, in total and for each principal.
"""

import asyncio
from dataclasses import replace

import pytest

from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import AnonymousCaller
from taskraft_service.api.rpc.calls_at_leader import ThisNodeLeads
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.tasks.outcomes import OutcomeHandlers, visible_task
from taskraft_service.leader.command_submitter import NotProposed
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.task_view import Extras, TaskView
from taskraft_service.queue.operations.kick_bury_delete import Bury
from taskraft_service.queue.operations.selection import ByIds
from tests.service.leader.test_outcome_waits import Stage
from tests.turns import turns_until

Task = task_pb2.Task


class Mailer(AnonymousCaller):
    name = "mailer"


class Reading:
    wall_offset_ms = 0

    def __init__(self, stage):
        self.applied = stage.queue
        self.queues = stage.outcomes._queues

    async def barrier(self):
        pass


class Forwarder:
    """Answers forwarded calls with the prepared answers, in order."""

    def __init__(self, *answers):
        self.answers = [*answers]
        self.calls = []

    async def forward(self, method, raw, deadline, **fields):
        self.calls.append((method, pb.WaitTasksRequest.FromString(raw), deadline, fields))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer.SerializeToString()


class Bench:
    def __init__(self, *answers):
        self.stage = Stage()
        self.forwarder = Forwarder(*answers)
        self.api = OutcomeHandlers(Reading(self.stage), self.stage.outcomes, self.forwarder)

    async def put(self, *payloads, **fields):
        """Put tasks and wait for their outcomes; leadership is lost as soon as the call waits."""
        request = pb.PutTasksRequest(tube="t", outcome_wait_ms=60_000, **fields)
        loop = asyncio.get_running_loop()

        async def do(_call, expecting):
            expecting.begin_attempt()
            bodies = [task_pb2.TaskSpec(payload=one).SerializeToString() for one in payloads]
            return pb.PutTasksResponse(task_ids=self.stage.put(*bodies))

        call = UnaryCall(request, b"", None, Mailer(), loop.time())
        putting = asyncio.ensure_future(self.api.put_and_wait(call, do))
        await turns_until(lambda: len(self.stage.outcomes))
        self.stage.outcomes.redirect_all()
        return pb.PutTasksResponse.FromString(await putting)


def known(*ids, **errors):
    answer = pb.WaitTasksResponse()
    for task_id in ids:
        answer.tasks.add(tube="t", id=task_id, outcome=Task.PROCESSED)
    for item in errors.get("items", ()):
        answer.errors.add(item=item)
    return answer


async def test_the_next_leader_is_asked_on_behalf_of_the_caller():
    bench = Bench(known(1, 2))
    answer = await bench.put(b"x", b"y")
    ((method, request, deadline, fields),) = bench.forwarder.calls
    assert method == "/taskraft.v1.TaskService/WaitTasks"
    assert fields["is_idempotent"]()
    assert fields["origin"].caller.name == "mailer"
    assert deadline is None
    assert (request.tube, list(request.selector.ids)) == ("t", [1, 2])
    assert 0 < request.wait_ms <= 60_000
    assert [(one.id, one.outcome) for one in answer.outcomes] == [
        (1, Task.PROCESSED),
        (2, Task.PROCESSED),
    ]


async def test_an_outcome_that_the_next_leader_does_not_know_stays_open():
    answer = await Bench(known(1, 3, items=[1])).put(b"x", b"y", b"z")
    assert [(one.tube, one.id, one.outcome) for one in answer.outcomes] == [
        ("t", 1, Task.PROCESSED),
        ("t", 2, Task.OUTCOME_UNSPECIFIED),
        ("t", 3, Task.PROCESSED),
    ]


async def test_the_put_succeeds_although_no_leader_is_found():
    answer = await Bench(CallRefused(error_pb2.Error.NO_LEADER, "none")).put(b"x", b"y")
    assert list(answer.task_ids) == [1, 2]
    assert [(one.id, one.outcome) for one in answer.outcomes] == [
        (1, Task.OUTCOME_UNSPECIFIED),
        (2, Task.OUTCOME_UNSPECIFIED),
    ]


async def test_a_request_with_an_id_is_repeated_as_a_whole():
    bench = Bench()
    with pytest.raises(NotProposed):
        await bench.put(b"x", request_id="r")
    assert not bench.forwarder.calls


async def test_a_node_that_leads_again_waits_itself():
    bench = Bench(ThisNodeLeads(), known(1))
    stage = bench.stage
    putting = asyncio.ensure_future(bench.put(b"x"))
    await turns_until(lambda: bench.forwarder.calls and len(stage.outcomes))
    stage.outcomes.redirect_all()
    assert [one.outcome for one in (await putting).outcomes] == [Task.PROCESSED]
    assert len(bench.forwarder.calls) == 2


async def test_a_node_that_leads_again_reports_the_outcome():
    bench = Bench(ThisNodeLeads())
    stage = bench.stage
    putting = asyncio.ensure_future(bench.put(b"x"))
    await turns_until(lambda: bench.forwarder.calls and len(stage.outcomes))
    stage.do(Bury("t", ByIds([1])))
    assert [one.outcome for one in (await putting).outcomes] == [Task.BURIED_OUT]


class Rival(AnonymousCaller):
    name = "rival"


@pytest.mark.parametrize("puts", [True, False])
@pytest.mark.parametrize("limit", ["waited_tasks_share_max", "waited_tasks_max"])
async def test_a_call_that_would_wait_for_too_many_tasks_is_refused(monkeypatch, limit, puts):
    bench, waiting = Bench(), []
    bench.stage.put(b"1", b"2")
    monkeypatch.setattr(limits, limit.upper(), 3)

    async def do(_call, _expecting):
        return pb.PutTasksResponse(task_ids=bench.stage.put(b"3", b"4"))

    def call(caller):
        now = asyncio.get_running_loop().time()
        if puts:
            request = pb.PutTasksRequest(
                tube="t", outcome_wait_ms=60_000, tasks=[task_pb2.TaskSpec()] * 2
            )
            return bench.api.put_and_wait(UnaryCall(request, b"", None, caller, now), do)
        request = pb.WaitTasksRequest(
            tube="t", selector=task_pb2.TaskSelector(ids=[1, 2]), wait_ms=60_000
        )
        return bench.api.wait_tasks(UnaryCall(request, b"", None, caller, now))

    async def wait(caller):
        waiting.append(asyncio.ensure_future(call(caller)))
        await turns_until(lambda: len(bench.stage.outcomes) == 2 * len(waiting))

    await wait(Mailer())
    with pytest.raises(CallRefused) as refused:
        await call(Mailer())
    assert refused.value.reason == error_pb2.Error.OVERLOADED
    whose = {"principal": "mailer"} if "share" in limit else {}
    assert refused.value.metadata == {"limit": limit, "value": "3"} | whose
    if "share" in limit:
        await wait(Rival())
        for _ in range(2):  # callers without a principal have no share
            await wait(AnonymousCaller())
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    monkeypatch.setattr(limits, limit.upper(), 2)
    waiting.clear()
    await wait(Mailer())
    waiting[0].cancel()


class Blind(AnonymousCaller):
    def may(self, verb, name):
        return name == "mine"


def test_a_task_moved_to_an_unreadable_tube_shows_only_its_outcome():
    counts = [5] * 6
    extras = Extras(outcome=TaskOutcome.DELETED, group="g")
    view = TaskView("theirs", 7, b"body", State.DONE, 5, *counts, "s", 5, 5, 5, extras)
    seen = visible_task(view, "before", Blind())
    assert seen == TaskView(
        "theirs", 7, b"", State.DONE, *[0] * 7, "", 0, 0, 0, Extras(outcome=TaskOutcome.DELETED)
    )
    for shown, caller in (
        (view, AnonymousCaller()),
        (replace(view, tube="before"), Blind()),
        (replace(view, tube="mine"), Blind()),
    ):
        assert visible_task(shown, "before", caller) is shown


async def test_a_wait_whose_outcomes_have_no_room_is_refused(monkeypatch):
    bench = Bench()
    spec = task_pb2.TaskSpec(payload=b"x" * 1_000).SerializeToString()
    ids = bench.stage.put(spec, spec)
    bench.stage.do(Bury("t", ByIds(ids)))
    monkeypatch.setattr(limits, "WAITED_CONTENT_BYTES_SHARE_MAX", 1_500)

    def wait(*ids):
        request = pb.WaitTasksRequest(tube="t", selector=task_pb2.TaskSelector(ids=ids))
        now = asyncio.get_running_loop().time()
        return bench.api.wait_tasks(UnaryCall(request, b"", None, Mailer(), now))

    with pytest.raises(CallRefused) as refused:
        await wait(*ids)
    assert refused.value.reason == error_pb2.Error.OVERLOADED
    limit = {"limit": "waited_content_bytes_share_max", "value": "1500", "principal": "mailer"}
    assert refused.value.metadata == limit
    answer = pb.WaitTasksResponse.FromString(await wait(ids[0]))
    assert answer.tasks[0].spec.payload == b"x" * 1_000
