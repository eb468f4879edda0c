"""Define the cases of the conformance suite: the commands and the checks of each case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskraft.conformance.lost_message import LostMessage
from taskraft.conformance.program import RuleBroken, decoded, encoded
from taskraft.conformance.stage import Stage, expect
from taskraft.conformance.stream_cases import (
    dropped_tube,
    expired_session,
    new_leader,
    refused_settlement,
    stream_cut_at_each_message,
    subscription,
    subscription_after_a_cut,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def put_take_acknowledge(stage: Stage) -> None:
    """Puts, takes and acknowledges tasks with any bytes as payload."""
    payloads = [bytes(range(256)), b"", "gr\u00fc\u00df dich \U0001f600".encode()]
    ids = stage.put(*payloads)
    tasks = stage.take()
    expect("ids of the taken tasks", [task["id"] for task in tasks], ids)
    expect("payloads", [decoded(task["payload"]) for task in tasks], payloads)
    expect("attempts", [int(task["attempt"]) for task in tasks], [1, 1, 1])
    expect("refused acknowledgements", stage.settle("ack", *(task["token"] for task in tasks)), [])
    expect("tasks that are still taken", stage.count("taken"), 0)


def exact_numbers(stage: Stage) -> None:
    """Keeps all 64 bits of lease tokens, for example in languages whose numbers are doubles."""
    stage.client.drop_tube(stage.tube.name, force=True)
    stage.client.create_tube(stage.tube.name, durability="temporary")
    stage.put(b"x")
    (task,) = stage.take()
    if int(task["token"]) < 2**53:
        raise RuleBroken(f"the token {task['token']} is not the token of a temporary tube")
    expect("refused acknowledgements", stage.settle("ack", task["token"]), [])


def headers_and_delay(stage: Stage) -> None:
    """Sends headers, priority and delay, and shows the headers of taken tasks."""
    headers = {"trace": encoded(b"\x00\xff"), "kind": encoded(b"mail")}
    task = {"payload": encoded(b"x"), "headers": headers, "priority": "7", "delay_ms": "60000"}
    answer = stage.program.succeed("put", tube=stage.tube.name, tasks=[task])
    (task_id,) = answer["task_ids"]
    shown = stage.tube.peek(int(task_id))
    expect("state", shown.state, "DELAYED")
    expect("priority", shown.priority, 7)
    expect("headers", dict(shown.headers), {"trace": b"\x00\xff", "kind": b"mail"})
    plain = {"payload": encoded(b"y"), "headers": headers}
    stage.program.succeed("put", tube=stage.tube.name, tasks=[plain])
    (taken,) = stage.take()
    expect("headers of the taken task", taken["headers"], headers)


def refused_items(stage: Stage) -> None:
    """Reports the refused leases of a settlement, and settles the others."""
    stage.put(b"a", b"b")
    first, second = (task["token"] for task in stage.take())
    expect("refused acknowledgements", stage.settle("ack", first), [])
    expect("refused leases", stage.settle("ack", first, second), [(0, "LEASE_STALE")])
    expect("tasks that are still taken", stage.count("taken"), 0)


def refused_calls(stage: Stage) -> None:
    """Reports code, reason and metadata of a refused call, and does not retry the call."""
    error = stage.program.fail("put", tube="a b", tasks=[{"payload": ""}])
    expect("code", error.get("code"), "INVALID_ARGUMENT")
    expect("reason", error.get("reason"), "INVALID_FIELD")
    stage.skip_if_puts_create_tubes("a take from a missing tube is not refused")
    error = stage.program.fail("take", tube=f"{stage.tube.name}-gone", tasks_max=1, wait_ms="0")
    expect("code", error.get("code"), "NOT_FOUND")
    expect("reason", error.get("reason"), "TUBE_NOT_FOUND")
    metadata: Mapping[str, str] = error.get("metadata", {})
    expect("metadata tube", metadata.get("tube"), f"{stage.tube.name}-gone")


def natural_keys(stage: Stage) -> None:
    """Sends a request_id with a client_id, so that a repeated request has one effect."""
    key = {"request_id": "order-4711", "client_id": stage.tube.name}
    ids = stage.put(b"x", **key)
    expect("ids of the repeated put", stage.put(b"x", **key), ids)
    expect("tasks", stage.count("ready"), 1)
    tasks = [{"payload": encoded(b"other")}]
    error = stage.program.fail("put", tube=stage.tube.name, tasks=tasks, **key)
    expect("reason", error.get("reason"), "REQUEST_ID_REUSED")


def lost_answers(stage: Stage) -> None:
    """Retries a put whose answer was lost; the put has one effect."""
    stage.put(b"the connection is open")
    lost = LostMessage(is_request=False, number=1)
    for proxy in stage.proxies:
        proxy.lose(lost)
    ids = stage.put(*[b"z" * 1_000] * 20)
    for proxy in stage.proxies:
        proxy.accept()
    if not lost.has_happened:
        raise RuleBroken(
            "no answer was lost; the program must use the addresses in TASKRAFT_TARGET"
        )
    expect("tasks of a put whose answer was lost", stage.count("ready"), 21)
    shown = [task.id for task in stage.tube.list()]
    expect("ids in the answer", ids, [str(each) for each in sorted(shown)[1:]])


def lost_nodes(stage: Stage) -> None:
    """Uses another node when one cannot be reached."""
    for proxy in stage.proxies:
        proxy.refuse()
        stage.put(b"x")
        proxy.accept()
    expect("tasks", stage.count("ready"), len(stage.proxies))


def waiting_take(stage: Stage) -> None:
    """Waits in a take until a task is READY, and returns no task after the wait."""
    expect("tasks of an empty tube", stage.take(wait_ms=0), [])
    stage.program.send("take", tube=stage.tube.name, tasks_max=1, wait_ms="20000")
    stage.until("the take waits", lambda: stage.tube.stats().waiting > 0)
    stage.tube.put(b"late")
    answer = stage.program.answer("take")
    expect("payloads", [decoded(task["payload"]) for task in answer["tasks"]], [b"late"])


def other_settlements(stage: Stage) -> None:
    """Touches, releases with a delay, and buries."""
    stage.put(b"a", b"b")
    first, second = (task["token"] for task in stage.take(ttr_ms="60000"))
    before = max(task.lease_until_ms for task in stage.tube.list())
    expect("refused touches", stage.settle("touch", first, increment_ms="60000"), [])
    if max(task.lease_until_ms for task in stage.tube.list()) <= before:
        raise RuleBroken("a touch did not extend the lease")
    expect("refused releases", stage.settle("release", first, delay_ms="60000"), [])
    expect("refused burials", stage.settle("bury", second), [])
    states = [task.state for task in stage.tube.list()]
    expect("states", sorted(states), ["BURIED", "DELAYED"])


def large_batches(stage: Stage) -> None:
    """Puts and takes 1 000 tasks with 3 kB each in one call."""
    ids = stage.put(*[b"x" * 3_000] * 1_000)
    tasks = stage.take(tasks_max=1_000)
    expect("ids", [task["id"] for task in tasks], ids)
    expect("refused acknowledgements", stage.settle("ack", *(task["token"] for task in tasks)), [])


CASES: Final[Sequence[Callable[[Stage], None]]] = (
    put_take_acknowledge,
    exact_numbers,
    headers_and_delay,
    refused_items,
    refused_calls,
    natural_keys,
    lost_answers,
    lost_nodes,
    waiting_take,
    other_settlements,
    subscription,
    subscription_after_a_cut,
    stream_cut_at_each_message,
    expired_session,
    refused_settlement,
    new_leader,
    dropped_tube,
    large_batches,
)
"""The cases in the order in which they run; the name of the function is the name of the case."""
