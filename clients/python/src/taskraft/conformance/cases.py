"""Define the cases of the conformance suite: the commands and the checks of each case."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from taskraft.conformance.program import (
    CaseSkipped,
    ClientProgram,
    RuleBroken,
    decoded,
    encoded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from taskraft import Client
    from taskraft._sync_tube import Tube
    from taskraft.conformance.proxy import CuttableProxy

FOLLOW_SECONDS: Final = 15.0
"""Maximum time in which a client goes on after a lost connection or a new leader, in seconds."""

END_SECONDS: Final = 3.0
"""Maximum time in which a client reports the end of a stream, in seconds."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The program, the cluster and the tube of one case.

    Args:
        program: the client program under test.
        client: a Python client that looks at the cluster directly.
        proxies: the proxies between the program and the nodes.
        tube: an empty tube of the case.
    """

    program: ClientProgram
    client: Client
    proxies: Sequence[CuttableProxy]
    tube: Tube

    def put(self, *payloads: bytes, **options: object) -> list[str]:
        """Let the program put tasks; return their ids.

        Raises:
            RuleBroken: a task was refused, or there is not one id for each task.
        """
        tasks = [{"payload": encoded(payload)} for payload in payloads]
        answer = self.program.succeed("put", tube=self.tube.name, tasks=tasks, **options)
        ids = [str(each) for each in answer.get("task_ids", ())]
        expect("errors of the put", answer.get("errors", []), [])
        expect("number of task ids", len(ids), len(payloads))
        return ids

    def take(
        self, tasks_max: int = 10, wait_ms: int = 0, **options: object
    ) -> list[dict[str, Any]]:
        """Let the program take tasks."""
        answer = self.program.succeed(
            "take",
            tube=self.tube.name,
            tasks_max=tasks_max,
            wait_ms=str(wait_ms),
            **options,
        )
        return list(answer["tasks"])

    def settle(self, action: str, *tokens: str, **options: object) -> list[tuple[int, str]]:
        """Let the program settle leases; return item and reason of each refused lease."""
        answer = self.program.succeed("settle", action=action, tokens=tokens, **options)
        return [(each["item"], each["reason"]) for each in answer.get("errors", ())]

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Return the next task of the program's subscription, or None."""
        answer = self.program.succeed("next", wait_ms=str(int(seconds * 1_000)))
        task: dict[str, Any] | None = answer["task"]
        return task

    def count(self, state: str) -> int:
        """Return the number of tasks of the tube in a state, such as "taken"."""
        number: int = getattr(self.tube.stats().tasks, state)
        return number

    def skip_if_puts_create_tubes(self, because: str) -> None:
        """Skip the rest of the case if the cluster setting ``auto_create_tubes`` is on.

        Raises:
            CaseSkipped: the setting is on.
        """
        if self.client.configure().auto_create_tubes:
            raise CaseSkipped(f"auto_create_tubes is on: {because}")

    def until(
        self, what: str, condition: Callable[[], bool], seconds: float = FOLLOW_SECONDS
    ) -> None:
        """Wait until a condition holds.

        Raises:
            RuleBroken: the condition does not hold in time.
        """
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise RuleBroken(f"not within {seconds:g} s: {what}")
            time.sleep(0.05)


def expect(what: str, found: object, wanted: object) -> None:
    """Compare two values.

    Raises:
        RuleBroken: they differ.
    """
    if found != wanted:
        raise RuleBroken(f"{what}: {found!r}, not {wanted!r}")


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
    payload = b"z" * 1_000
    for proxy in stage.proxies:
        proxy.cut_next_answer(min_bytes=len(payload))
    ids = stage.put(*[payload] * 20)
    lost = sum(proxy.has_cut for proxy in stage.proxies)
    for proxy in stage.proxies:
        proxy.accept()
    if not lost:
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


def subscription(stage: Stage) -> None:
    """Takes tasks from a stream within its credit, and acknowledges them on the stream."""
    for number in range(5):
        stage.tube.put(str(number))
    stage.program.succeed("subscribe", tube=stage.tube.name, credit=2)
    tasks = [stage.next(FOLLOW_SECONDS) for _ in range(2)]
    found = [decoded(task["payload"]) for task in tasks if task is not None]
    expect("payloads", found, [b"0", b"1"])
    expect("a task beyond the credit", stage.next(0.3), None)
    expect("taken tasks", stage.count("taken"), 2)
    assert tasks[0] is not None
    answer = stage.program.succeed("stream_ack", tokens=[tasks[0]["token"]])
    expect("refused acknowledgements", answer.get("errors", []), [])
    third = stage.next(FOLLOW_SECONDS)
    expect("payload after the acknowledgement", third and decoded(third["payload"]), b"2")
    stage.program.succeed("unsubscribe")
    stage.until("leases end with the subscription", lambda: stage.count("taken") == 0, 3)


def subscription_after_a_cut(stage: Stage) -> None:
    """Opens a lost stream again, and keeps the leases of its session."""
    stage.tube.put("first")
    stage.program.succeed("subscribe", tube=stage.tube.name, credit=1)
    task = stage.next(FOLLOW_SECONDS)
    expect("payload", task and decoded(task["payload"]), b"first")
    assert task is not None
    for proxy in stage.proxies:
        proxy.cut()
    _acknowledge_at_last(stage, task)
    stage.tube.put("second")
    second = stage.next(FOLLOW_SECONDS)
    expect("payload after the cut", second and decoded(second["payload"]), b"second")
    stage.program.succeed("unsubscribe")


def new_leader(stage: Stage) -> None:
    """Puts, takes and keeps its subscription when another node becomes the leader."""
    stage.program.succeed("subscribe", tube=stage.tube.name, credit=1)
    for round_ in range(2):
        stage.client.transfer_leadership()
        (task_id,) = stage.put(f"round {round_}".encode())
        task = stage.next(FOLLOW_SECONDS)
        expect("id of the task", task and task["id"], task_id)
        assert task is not None
        _acknowledge_at_last(stage, task)
    stage.program.succeed("unsubscribe")


def _acknowledge_at_last(stage: Stage, task: Mapping[str, Any]) -> None:
    """Let the program acknowledge a task on the stream, and wait until the task is removed."""
    answer = stage.program.succeed("stream_ack", tokens=[task["token"]])
    expect("refused acknowledgements", answer.get("errors", []), [])
    stage.until("the acknowledged task is gone", lambda: stage.count("taken") == 0)


def dropped_tube(stage: Stage) -> None:
    """Reports that the tube of a stream was dropped, and does not open the stream again."""
    stage.skip_if_puts_create_tubes("a stream waits for the next put")
    stage.tube.put("first")
    stage.program.succeed("subscribe", tube=stage.tube.name, credit=1)
    task = stage.next(FOLLOW_SECONDS)
    expect("payload", task and decoded(task["payload"]), b"first")
    assert task is not None
    _acknowledge_at_last(stage, task)
    stage.client.drop_tube(stage.tube.name, force=True)
    try:
        error = stage.program.fail("next", wait_ms=str(int(END_SECONDS * 1_000)))
    finally:
        stage.client.create_tube(stage.tube.name)
    expect("code", error.get("code"), "NOT_FOUND")
    expect("reason", error.get("reason"), "TUBE_NOT_FOUND")
    stage.tube.put("second")
    error = stage.program.fail("next", wait_ms="500")
    expect("reason for a later tube of the same name", error.get("reason"), "TUBE_NOT_FOUND")
    expect("tasks taken by a stream that has ended", stage.count("taken"), 0)
    stage.program.succeed("unsubscribe")


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
    new_leader,
    dropped_tube,
    large_batches,
)
"""The cases in the order in which they run; the name of the function is the name of the case."""
