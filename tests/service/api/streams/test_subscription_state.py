"""The takes of a subscription: within its credit, from tubes that have ready tasks."""

from __future__ import annotations

import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import AnonymousCaller
from taskraft_service.access.permissions import Verb
from taskraft_service.api.streams.responses import MESSAGE_BYTES_TARGET, ResponseBuffer
from taskraft_service.api.streams.subscription_state import SubscriptionState
from taskraft_service.leader.command_submitter import AppliedCommand, NotProposed
from taskraft_service.leader.waiters import Claim
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.operations.take import Take, TakeResult
from tests.service.api.rpc.call_loads import call_load


@pytest.fixture
def subscription() -> SubscriptionState:
    sources = [pb.TakeSource(tube="emails"), pb.TakeSource(tube="letters")]
    opened = pb.SubscribeRequest.Open(sources=sources, types=["urgent"])
    return SubscriptionState(opened, "session", lambda _tokens: None, call_load())


def wish(subscription: SubscriptionState, *tubes: str, tasks_max: int = 1) -> Take:
    command = subscription.take(tubes, tasks_max).command
    assert isinstance(command, Take)
    return command


def test_equal_takes_are_encoded_once(subscription):
    assert subscription.take(["emails"], 1) is subscription.take(["emails"], 1)


def test_a_take_with_other_tubes_or_more_tasks_is_encoded_again(subscription):
    assert wish(subscription, "emails").tubes == ["emails"]
    assert wish(subscription, "emails", "letters").tubes == ["emails", "letters"]
    assert wish(subscription, "emails", "letters", tasks_max=3).tasks_max == 3


def test_a_take_asks_for_no_more_bytes_than_the_remaining_credit(subscription):
    subscription.grant(pb.SubscribeRequest.Credit(tasks=10, bytes=100))
    assert wish(subscription, "emails").bytes_max == 100
    subscription.grant(pb.SubscribeRequest.Credit(bytes=50))
    assert wish(subscription, "emails").bytes_max == 150


def test_every_take_carries_the_options_of_the_opening(subscription):
    for tasks_max in (1, 2):
        take = wish(subscription, "emails", tasks_max=tasks_max)
        assert (take.session_id, take.types) == ("session", ("urgent",))


class Limited(AnonymousCaller):
    """A caller with all permissions except the revoked ones."""

    is_restricted = True

    def __init__(self) -> None:
        self.withdrawn: set[str] = set()

    def may(self, verb: Verb, name: str) -> bool:
        del verb
        return name not in self.withdrawn


def test_a_revoked_permission_stops_takes_like_the_last_one():
    caller = Limited()
    opened = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="emails")])
    subscription = SubscriptionState(opened, "session", lambda _tokens: None, call_load(), caller)
    assert wish(subscription, "emails").tubes == ["emails"]
    caller.withdrawn.add("emails")
    assert wish(subscription, "emails").tubes == []


class Streamed:
    """A subscription, and the tasks that it has released."""

    def __init__(self, *tubes: str, **opened: bool) -> None:
        sources = [pb.TakeSource(tube=tube) for tube in tubes]
        self.given_back: list[int] = []
        wish = pb.SubscribeRequest.Open(sources=sources, **opened)
        self.subscription = SubscriptionState(wish, "session", self.given_back.extend, call_load())

    def claim(self, tasks_max: int) -> Claim:
        encoded = self.subscription.take(self.subscription.sources, tasks_max)
        return Claim(self.subscription, encoded, tasks_max, tasks_max, "", {}, {})

    def answer(self, claim: Claim, result: TakeResult | Refusal) -> None:
        self.subscription.answered(claim, AppliedCommand(1, 1, 0, result))

    async def message(self) -> pb.SubscribeResponse | None:
        raw = await self.subscription.responses.next()
        return None if raw is None else pb.SubscribeResponse.FromString(raw)


def task(token: int, payload: bytes = b"x" * 10) -> TaskView:
    body = task_pb2.TaskSpec(payload=payload).SerializeToString()
    return TaskView("emails", token, body, State.TAKEN, token, *[0] * 6, "s", *[0] * 3)


def refused(reason: Reason) -> Refusal:
    return Refusal(reason, "why")


async def test_credit_in_tasks_is_used_by_claims_and_then_by_tasks():
    one = Streamed("emails")
    subscription = one.subscription
    subscription.grant(pb.SubscribeRequest.Credit(tasks=5, bytes=0))
    claim = one.claim(3)
    assert (subscription.wanted_tasks(), subscription.credit_tasks) == (2, 5)
    assert not subscription.idle.is_set()
    one.answer(claim, TakeResult((task(1),)))
    assert (subscription.wanted_tasks(), subscription.credit_tasks) == (4, 4)
    assert subscription.idle.is_set()
    # The first grant decides whether bytes are limited.
    subscription.grant(pb.SubscribeRequest.Credit(tasks=1, bytes=1))
    assert subscription.wanted_tasks() == 5


async def test_credit_in_bytes_is_used_by_payloads_and_allows_one_claim_at_a_time():
    one = Streamed("emails")
    subscription = one.subscription
    subscription.grant(pb.SubscribeRequest.Credit(tasks=5, bytes=15))
    claim = one.claim(2)
    assert subscription.wanted_tasks() == 0
    one.answer(claim, TakeResult((task(1),)))
    assert subscription.wanted_tasks() == 4
    one.answer(one.claim(2), TakeResult((task(2),)))
    assert subscription.wanted_tasks() == 0
    subscription.grant(pb.SubscribeRequest.Credit(bytes=5))
    assert subscription.wanted_tasks() == 0
    subscription.grant(pb.SubscribeRequest.Credit(bytes=1))
    assert subscription.wanted_tasks() == 3


async def test_payloads_that_are_not_sent_use_no_credit():
    one = Streamed("emails", payload_omit=True)
    one.subscription.grant(pb.SubscribeRequest.Credit(tasks=5, bytes=10))
    one.answer(one.claim(1), TakeResult((task(1),)))
    assert one.subscription.wanted_tasks() == 4
    message = await one.message()
    assert [shown.spec.payload for shown in message.tasks] == [b""]


async def test_a_lost_claim_reports_nothing():
    one = Streamed("emails")
    one.subscription.answered(one.claim(1), NotProposed("lost"))
    assert not one.subscription.responses.ended
    assert one.subscription.idle.is_set()


@pytest.mark.parametrize(
    ("tube", "reason", "ends"),
    [
        ("emails", Reason.TUBE_NOT_FOUND, True),
        ("em*", Reason.TUBE_NOT_FOUND, False),
        ("em*", Reason.SESSION_NOT_FOUND, True),
    ],
)
async def test_a_refused_claim_ends_the_stream_unless_one_of_several_tubes_is_gone(
    tube, reason, ends
):
    one = Streamed(tube)
    one.answer(one.claim(1), refused(reason))
    assert one.subscription.responses.ended is ends
    if ends:
        message = await one.message()
        assert message.go_away.error.reason == reason.value
        assert await one.message() is None


async def test_tasks_that_arrive_after_the_end_are_released():
    one = Streamed("emails")
    one.subscription.grant(pb.SubscribeRequest.Credit(tasks=5))
    claim = one.claim(2)
    one.subscription.responses.end()
    assert one.subscription.wanted_tasks() == 0
    one.answer(claim, TakeResult((task(7), task(8))))
    assert one.given_back == [7, 8]
    assert one.subscription.credit_tasks == 5


async def test_a_message_is_limited_in_size_unless_one_part_exceeds_the_limit():
    outbox = ResponseBuffer(call_load())
    half = b"x" * (MESSAGE_BYTES_TARGET // 2)
    for part in (half, half, b"y", half + half + b"z", b"w"):
        outbox.add(part)
    outbox.end()
    sizes = []
    while (message := await outbox.next()) is not None:
        sizes.append(len(message))
    assert sizes == [MESSAGE_BYTES_TARGET, 1, MESSAGE_BYTES_TARGET + 1, 1]


async def test_leases_of_unsent_tasks_are_returned_once():
    outbox = ResponseBuffer(call_load())
    outbox.add(b"opened")
    outbox.add_tasks([b"a", b"b"], [4, 5])
    assert outbox.unsent() == [4, 5]
    assert outbox.unsent() == []


async def test_a_woken_writer_gets_an_empty_message_once():
    outbox = ResponseBuffer(call_load())
    outbox.wake_writer()
    assert await outbox.next() == b""
    outbox.add(b"a")
    assert await outbox.next() == b"a"
    outbox.end()
    outbox.end(pb.SubscribeResponse(settled=[]))
    assert await outbox.next() is None
