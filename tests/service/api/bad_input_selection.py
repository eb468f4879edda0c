"""Invalid requests that select tasks by id, key or filter: method, request, reason."""

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.limits import SELECTOR_IDS_MAX

INVALID = "INVALID_FIELD"
CHANGES = {
    "KickTasks": pb.KickTasksRequest,
    "BuryTasks": pb.BuryTasksRequest,
    "DeleteTasks": pb.DeleteTasksRequest,
    "UpdateTasks": pb.UpdateTasksRequest,
    "SnatchTasks": pb.SnatchTasksRequest,
    "RestartTasks": pb.RestartTasksRequest,
    "SwitchTasks": pb.SwitchTasksRequest,
    "MoveTasks": pb.MoveTasksRequest,
    "CancelTasks": pb.CancelTasksRequest,
}
IMPLEMENTED = {*CHANGES, "GetTasks", "ListTasks", "CountTasks", "GetTaskGraph"}


def key(*parts):
    return task_pb2.UniqueKey(parts=parts)


SELECTORS = [
    {"ids": [0]},
    {"ids": [1, -1]},
    {"ids": range(1, SELECTOR_IDS_MAX + 2)},
    {"ids": [1], "keys": [key("a")]},
    {"ids": [1], "filter": "id = 1"},
    {"keys": [key()]},
    {"keys": [key("")]},
    {"keys": [key(*"123456789")]},
    {"keys": [key("x" * 257)]},
    {"filter": "state = LOST"},
    {"filter": "id = 1 AND"},
    {"filter": "id = 1", "tasks_max": -1},
    {"filter": "id = 1", "tasks_max": SELECTOR_IDS_MAX + 1},
    {"filter": "id = 1", "after_id": -1},
    {"ids": [1], "tasks_max": 1},
    {"keys": [key("a")], "after_id": 1},
]


def request(method, tube="emails", selector=None, **fields):
    if method == "SwitchTasks":
        fields = {"state": task_pb2.Task.READY, **fields}
    if method == "MoveTasks":
        fields = fields if "move_to" in fields else {"to_origin": True, **fields}
    if method == "UpdateTasks":
        fields = {"update": task_pb2.TaskUpdate(priority=1), **fields}
    chosen = task_pb2.TaskSelector(**(selector if selector is not None else {"ids": [1]}))
    return CHANGES[method](tube=tube, selector=chosen, **fields)


CASES = [
    *(
        (method, request(method, selector=wrong), INVALID)
        for method in CHANGES
        for wrong in SELECTORS
    ),
    *((method, request(method, tube="nowhere"), "TUBE_NOT_FOUND") for method in CHANGES),
    *((method, request(method, tube="a b"), INVALID) for method in CHANGES),
    *((method, request(method, request_id="x" * 65), INVALID) for method in CHANGES),
    *(
        (method, request(method, selector={}), INVALID)
        for method in CHANGES
        if method != "KickTasks"
    ),
    ("UpdateTasks", request("UpdateTasks", update=task_pb2.TaskUpdate()), INVALID),
    ("UpdateTasks", request("UpdateTasks", update=task_pb2.TaskUpdate(delay_ms=-1)), INVALID),
    (
        "UpdateTasks",
        request("UpdateTasks", update=task_pb2.TaskUpdate(payload=b"x" * 1025)),
        "PAYLOAD_TOO_LARGE",
    ),
    (
        "UpdateTasks",
        request("UpdateTasks", update={"headers_set": {"a": b""}, "headers_remove": ["a"]}),
        INVALID,
    ),
    ("SnatchTasks", request("SnatchTasks", delay_ms=-1), INVALID),
    ("RestartTasks", request("RestartTasks", delay_ms=-1), INVALID),
    ("SwitchTasks", request("SwitchTasks", state=task_pb2.Task.TAKEN), INVALID),
    ("SwitchTasks", request("SwitchTasks", state=task_pb2.Task.HELD), INVALID),
    ("SwitchTasks", request("SwitchTasks", state=99), INVALID),
    ("SwitchTasks", request("SwitchTasks", state=task_pb2.Task.DELAYED), INVALID),
    ("SwitchTasks", request("SwitchTasks", state=task_pb2.Task.ZOMBIE), INVALID),
    ("SwitchTasks", request("SwitchTasks", duration_ms=1), INVALID),
    ("SwitchTasks", request("SwitchTasks", duration_ms=-1), INVALID),
    ("MoveTasks", request("MoveTasks", to_origin=False), INVALID),
    ("MoveTasks", request("MoveTasks", move_to="emails"), INVALID),
    ("MoveTasks", request("MoveTasks", move_to="nowhere"), "TUBE_NOT_FOUND"),
    ("MoveTasks", request("MoveTasks", position=9), INVALID),
    ("GetTasks", pb.GetTasksRequest(tube="emails", selector=SELECTORS[9]), INVALID),
    ("GetTasks", pb.GetTasksRequest(tube="emails", selector={"keys": [key("")]}), INVALID),
    ("ListTasks", pb.ListTasksRequest(tube="emails", filter="attempt > x"), INVALID),
    ("ListTasks", pb.ListTasksRequest(tube="emails", order_by="priority"), INVALID),
]
