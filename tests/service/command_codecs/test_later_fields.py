"""Fields of a later cluster version are read as absent, at any depth."""

from taskraft.v1 import task_service_pb2
from taskraft_service.command_codecs.later_fields import has_later_fields, hide_later_fields

SINCE = {("taskraft.v1.TaskSpec", "priority"): 2}


def batch(priority):
    request = task_service_pb2.ExecuteBatchRequest(request_id="r")
    put = request.operations.add().put
    put.tube = "mail"
    put.tasks.add(payload=b"a", priority=priority)
    put.tasks.add(payload=b"b")
    return request


def test_a_later_field_is_hidden_inside_other_messages():
    request = batch(9)
    hide_later_fields(request, 1, SINCE)
    assert request == batch(None)


def test_a_field_of_the_version_in_force_is_kept():
    request = batch(9)
    hide_later_fields(request, 2, SINCE)
    assert request == batch(9)


def test_only_messages_with_later_fields_are_searched():
    kind = task_service_pb2.ExecuteBatchRequest
    assert has_later_fields(kind, 1, SINCE)
    assert not has_later_fields(kind, 2, SINCE)
    assert not has_later_fields(task_service_pb2.DeleteTasksRequest, 1, SINCE)
    assert not has_later_fields(kind, 1)
