"""Define the cases of the conformance suite that use a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from taskraft.conformance.lost_message import LostMessage
from taskraft.conformance.program import RuleBroken, decoded
from taskraft.conformance.stage import FOLLOW_SECONDS, Stage, expect

if TYPE_CHECKING:
    from collections.abc import Mapping

END_SECONDS: Final = 3.0
"""Maximum time in which a client reports the end of a stream, in seconds."""

EXPIRED_TTR_MS: Final = 1_000
"""Time for which the leases of a session outlive its stream in `expired_session`, in ms."""

RESUME_SECONDS: Final = 5.0
"""Maximum time until a task arrives after a cut while all nodes can be reached, in seconds."""


def subscription(stage: Stage) -> None:
    """Takes tasks from a stream within its credit, and acknowledges them on the stream."""
    for number in range(5):
        stage.tube.put(str(number))
    stage.subscribe(credit=2)
    tasks = [stage.next(FOLLOW_SECONDS) for _ in range(2)]
    found = [decoded(task["payload"]) for task in tasks if task is not None]
    expect("payloads", found, [b"0", b"1"])
    expect("a task beyond the credit", stage.next(0.3), None)
    expect("taken tasks", stage.count("taken"), 2)
    assert tasks[0] is not None
    expect("refused acknowledgements", stage.stream_ack(tasks[0]["token"]), [])
    third = stage.next(FOLLOW_SECONDS)
    expect("payload after the acknowledgement", third and decoded(third["payload"]), b"2")
    stage.program.succeed("unsubscribe")
    stage.until("leases end with the subscription", lambda: stage.count("taken") == 0, 3)


def subscription_after_a_cut(stage: Stage) -> None:
    """Opens a lost stream again, and keeps the leases of its session."""
    stage.tube.put("first")
    stage.subscribe(credit=1)
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


def stream_cut_at_each_message(stage: Stage) -> None:
    """Loses no task when a stream is cut at any of its messages, and counts no attempt too many."""
    for is_request in (True, False):
        lost = LostMessage(is_request=is_request, number=1)
        number = 1
        while _is_cut_at(stage, lost, f"{'request' if is_request else 'answer'} {number}"):
            number += 1
            lost = LostMessage(is_request=is_request, number=number)
        if number == 1:
            raise RuleBroken("no message was lost; the program must use TASKRAFT_TARGET")


def _is_cut_at(stage: Stage, lost: LostMessage, name: str) -> bool:
    """Work on two tasks while a message is lost; return whether the message was lost."""
    left = {str(each) for each in stage.tube.put_many([b"a", b"b"])}
    for proxy in stage.proxies:
        proxy.lose(lost)
    stage.subscribe(credit=len(left))
    while left:
        task = stage.next(RESUME_SECONDS)
        if task is None:
            held = stage.count("taken")
            raise RuleBroken(f"{name} lost: no task for {RESUME_SECONDS:g} s, {held} are taken")
        expect(f"{name} lost: attempt of task {task['id']}", int(task["attempt"]), 1)
        if not stage.stream_ack(task["token"]):
            left.discard(task["id"])
    stage.program.succeed("unsubscribe")
    for proxy in stage.proxies:
        proxy.accept()
    expect(f"{name} lost: taken tasks in the end", stage.count("taken"), 0)
    expect(f"{name} lost: tasks in the end", stage.count("total"), 0)
    return lost.has_happened


def expired_session(stage: Stage) -> None:
    """Opens a new session after its session has expired, and takes the tasks again."""
    left = {str(each) for each in stage.tube.put_many([b"a", b"b"])}
    stage.subscribe(credit=2, session_ttr_ms=str(EXPIRED_TTR_MS))
    task = stage.next(FOLLOW_SECONDS)
    assert task is not None
    stage.until("the program has both tasks", lambda: stage.count("taken") == len(left))
    for proxy in stage.proxies:
        proxy.refuse()
    stage.until("the session has expired", lambda: stage.count("taken") == 0)
    for proxy in stage.proxies:
        proxy.accept()
    expect("refused leases", stage.stream_ack(task["token"]), [(0, "LEASE_STALE")])
    while left:
        task = stage.next(RESUME_SECONDS)
        if task is None:
            raise RuleBroken(f"the new session got no task for {RESUME_SECONDS:g} s")
        if not stage.stream_ack(task["token"]):
            left.discard(task["id"])
    stage.program.succeed("unsubscribe")
    expect("taken tasks in the end", stage.count("taken"), 0)


def refused_settlement(stage: Stage) -> None:
    """Reports that a settlement on the stream was refused as a whole."""
    stage.tube.put("first")
    stage.subscribe(credit=1)
    task = stage.next(FOLLOW_SECONDS)
    assert task is not None
    error = stage.program.fail("stream_ack", tokens=[task["token"], "-1"])
    expect("reason", error.get("reason"), "INVALID_FIELD")
    _acknowledge_at_last(stage, task)
    stage.tube.put_many([b"second", b"third"])
    second = stage.next(FOLLOW_SECONDS)
    expect("payload", second and decoded(second["payload"]), b"second")
    expect("a task beyond the credit", stage.next(0.3), None)
    stage.program.succeed("unsubscribe")


def new_leader(stage: Stage) -> None:
    """Puts, takes and keeps its subscription when another node becomes the leader."""
    stage.subscribe(credit=1)
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
    expect("refused acknowledgements", stage.stream_ack(task["token"]), [])
    stage.until("the acknowledged task is gone", lambda: stage.count("taken") == 0)


def dropped_tube(stage: Stage) -> None:
    """Reports that the tube of a stream was dropped, and does not open the stream again."""
    stage.skip_if_puts_create_tubes("a stream waits for the next put")
    stage.tube.put("first")
    stage.subscribe(credit=1)
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
