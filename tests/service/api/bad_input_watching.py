"""Invalid requests of the calls that only look: method, request, reason."""

from taskraft.v1 import task_service_pb2 as pb
from taskraft.v1 import tube_service_pb2

INVALID = "INVALID_FIELD"

CASES = [
    ("GetTaskGraph", pb.GetTaskGraphRequest(tube="nowhere", id=1), "TUBE_NOT_FOUND"),
    ("GetTaskGraph", pb.GetTaskGraphRequest(tube="emails", id=77), "TASK_NOT_FOUND"),
    ("GetTaskGraph", pb.GetTaskGraphRequest(tube="emails"), INVALID),
    ("GetTaskGraph", pb.GetTaskGraphRequest(tube="emails", id=1, depth_max=6), INVALID),
    ("GetTaskGraph", pb.GetTaskGraphRequest(tube="emails", id=1, tasks_max=501), INVALID),
    ("ListConsumers", tube_service_pb2.ListConsumersRequest(tube="a b"), INVALID),
    ("ListConsumers", tube_service_pb2.ListConsumersRequest(tube="gone"), "TUBE_NOT_FOUND"),
    ("ListConsumers", tube_service_pb2.ListConsumersRequest(tube="emails", page_size=-1), INVALID),
    (
        "ListConsumers",
        tube_service_pb2.ListConsumersRequest(tube="emails", page_token="?"),
        INVALID,
    ),
    (
        "ListConsumers",
        tube_service_pb2.ListConsumersRequest(tube="emails", session_id="0" * 8),
        INVALID,
    ),
    ("ListConsumers", tube_service_pb2.ListConsumersRequest(session_id="x"), INVALID),
    (
        "ListConsumers",
        tube_service_pb2.ListConsumersRequest(session_id="0" * 8),
        "SESSION_NOT_FOUND",
    ),
    ("GetStatistics", tube_service_pb2.GetStatisticsRequest(tubes=["a b"]), INVALID),
    ("GetStatistics", tube_service_pb2.GetStatisticsRequest(order_by=9), INVALID),
    (
        "GetStatistics",
        tube_service_pb2.GetStatisticsRequest(order_by=1, changed_since_revision=1),
        INVALID,
    ),
    (
        "GetStatistics",
        tube_service_pb2.GetStatisticsRequest(order_by=1, page_token="eHl6"),
        INVALID,
    ),
    ("GetHistory", tube_service_pb2.GetHistoryRequest(step_ms=60_000), INVALID),
    ("ListFailures", tube_service_pb2.ListFailuresRequest(tubes=["a b"]), INVALID),
    ("ListFailures", tube_service_pb2.ListFailuresRequest(since_ms=-1), INVALID),
    ("ListFailures", tube_service_pb2.ListFailuresRequest(page_token="eHl6"), INVALID),
]
