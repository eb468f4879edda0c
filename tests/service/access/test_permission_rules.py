"""Every request has a permission rule, which covers everything that the request names."""

import pytest

from bench.worst.calls import methods_of_the_contract
from taskraft.v1 import feed_service_pb2 as feed
from taskraft.v1 import group_service_pb2, schedule_service_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.permission_rules import RULES, required_permissions
from taskraft_service.access.permissions import Grant, Permissions, Verb

PUT, TAKE, READ, MANAGE = Verb.PUT, Verb.TAKE, Verb.READ, Verb.MANAGE


def test_every_method_of_the_contract_has_a_rule():
    ruled = {kind.DESCRIPTOR.full_name for kind in RULES}
    methods = methods_of_the_contract()
    assert len(methods) > 40
    assert [each.full_name for each in methods if each.input_type.full_name not in ruled] == []


def test_every_rule_belongs_to_a_method():
    requests = {each.input_type.full_name for each in methods_of_the_contract()}
    assert {kind.DESCRIPTOR.full_name for kind in RULES} - requests == set()


def test_a_request_without_a_rule_needs_admin_permission():
    assert list(required_permissions(task_pb2.UniqueKey())) == [(MANAGE, "*")]


def release(to):
    return pb.Settlement(tokens=[1], release=pb.Settlement.Release(move_to=to))


SPEC = task_pb2.TaskSpec(group="g")
AFTER = task_pb2.TaskSpec(
    depends_on=[{"item": 0}, *({"task": {"tube": name, "id": 1}} for name in "ab")]
)
GROUP_TASK = group_service_pb2.GroupTask(tube="t", spec=SPEC)
DEAD = tube_service_pb2.TubeOptions(dead_letter_tube="dead")


@pytest.mark.parametrize(
    ("request_", "needs"),
    [
        (pb.PutTasksRequest(tube="a"), {(PUT, "a")}),
        (pb.PutTasksRequest(tube="a", outcome_wait_ms=1), {(PUT, "a"), (READ, "a")}),
        (pb.PutTasksRequest(tube="a", tasks=[SPEC, SPEC]), {(PUT, "a"), (PUT, "g")}),
        (
            pb.PutTasksRequest(tube="a", tasks=[AFTER]),
            {(PUT, "a"), (READ, "a"), (READ, "b")},
        ),
        (
            pb.PutTasksRequest(tube="a", tasks=[{"depends_on": [{"task": {"id": 1}}]}]),
            {(PUT, "a"), (READ, "a")},
        ),
        (
            pb.PutTasksRequest(tube="a", tasks=[SPEC, {"depends_on": [{"item": 0}]}]),
            {(PUT, "a"), (PUT, "g")},
        ),
        (
            pb.TakeTasksRequest(sources=[pb.TakeSource(tube="a"), pb.TakeSource(tube="b.*")]),
            {(TAKE, "a"), (TAKE, "")},
        ),
        (pb.SettleTasksRequest(settlements=[release("b")]), {(TAKE, ""), (PUT, "b")}),
        (pb.MoveTasksRequest(tube="a", move_to="b"), {(MANAGE, "a"), (PUT, "b")}),
        (pb.MoveTasksRequest(tube="a", to_origin=True), {(MANAGE, "a"), (PUT, "*")}),
        (
            pb.SubscribeRequest(
                open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="a")]),
                settlements=[release("b")],
            ),
            {(TAKE, ""), (TAKE, "a"), (PUT, "b")},
        ),
        (
            pb.ExecuteBatchRequest(
                operations=[
                    pb.BatchOperation(put=pb.PutTasksRequest(tube="a")),
                    pb.BatchOperation(delete=pb.DeleteTasksRequest(tube="b")),
                    pb.BatchOperation(settle=pb.SettleTasksRequest(settlements=[release("c")])),
                    pb.BatchOperation(),
                ]
            ),
            {(PUT, "a"), (MANAGE, "b"), (TAKE, ""), (PUT, "c")},
        ),
        (
            tube_service_pb2.CreateTubeRequest(tube=tube_service_pb2.Tube(name="a", options=DEAD)),
            {(MANAGE, "a"), (PUT, "dead")},
        ),
        (
            tube_service_pb2.UpdateTubeRequest(name="a", options=DEAD),
            {(MANAGE, "a"), (PUT, "dead")},
        ),
        (
            group_service_pb2.CreateGroupRequest(
                group=group_service_pb2.Group(name="a", end_task=GROUP_TASK)
            ),
            {(PUT, "a"), (PUT, "t"), (PUT, "g")},
        ),
        (
            schedule_service_pb2.UpdateScheduleRequest(
                schedule=schedule_service_pb2.Schedule(name="a", tube="t", spec=SPEC)
            ),
            {(PUT, "a"), (PUT, "t"), (PUT, "g")},
        ),
        (feed.ReadChangesRequest(tubes=["a", "b"]), {(READ, "a"), (READ, "b")}),
        (feed.ReadChangesRequest(), {(READ, "*")}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_request_needs_permission_for_everything_that_it_names(request_, needs):
    assert set(required_permissions(request_)) == needs


def test_permissions_come_from_roles_on_matching_names():
    rights = Permissions([Grant("producer", ["mail.*", "sms"]), Grant("reader", ["*"])])
    allowed = {
        (verb, name)
        for verb in Verb
        for name in ("mail.a", "mail", "sms", "smsx", "*", "")
        if rights.allow(verb, name)
    }
    everywhere = {(READ, name) for name in ("mail.a", "mail", "sms", "smsx", "*", "")}
    assert allowed == everywhere | {(PUT, "mail.a"), (PUT, "sms"), (PUT, "")}


def test_a_dot_in_a_pattern_matches_only_a_dot():
    assert not Permissions([Grant("admin", ["a.b"])]).allow(PUT, "axb")
