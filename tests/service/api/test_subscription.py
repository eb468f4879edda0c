"""What a subscription asks for: takes within its credit, from the tubes that have something."""

from __future__ import annotations

import pytest

from service.access.caller import AnonymousCaller
from service.access.rights import Verb
from service.api.subscription import Subscription
from service.queue.commands import Take
from taskraft.v1 import task_service_pb2 as pb


@pytest.fixture
def subscription() -> Subscription:
    sources = [pb.TakeSource(tube="emails"), pb.TakeSource(tube="letters")]
    opened = pb.SubscribeRequest.Open(sources=sources, types=["urgent"])
    return Subscription(opened, "session", lambda _tokens: None)


def wish(subscription: Subscription, *tubes: str, tasks_max: int = 1) -> Take:
    command = subscription.take(tubes, tasks_max).command
    assert isinstance(command, Take)
    return command


def test_takes_that_are_alike_are_written_once(subscription):
    assert subscription.take(["emails"], 1) is subscription.take(["emails"], 1)


def test_a_take_from_other_tubes_or_of_more_tasks_is_written_anew(subscription):
    assert wish(subscription, "emails").tubes == ["emails"]
    assert wish(subscription, "emails", "letters").tubes == ["emails", "letters"]
    assert wish(subscription, "emails", "letters", tasks_max=3).tasks_max == 3


def test_a_take_asks_for_no_more_bytes_than_the_credit_has_left(subscription):
    subscription.grant(pb.SubscribeRequest.Credit(tasks=10, bytes=100))
    assert wish(subscription, "emails").bytes_max == 100
    subscription.grant(pb.SubscribeRequest.Credit(bytes=50))
    assert wish(subscription, "emails").bytes_max == 150


def test_every_take_carries_what_was_asked_for_at_the_beginning(subscription):
    for tasks_max in (1, 2):
        take = wish(subscription, "emails", tasks_max=tasks_max)
        assert (take.session_id, take.types) == ("session", ("urgent",))


class Limited(AnonymousCaller):
    """A caller who may do everything but what was withdrawn."""

    is_limited = True

    def __init__(self) -> None:
        self.withdrawn: set[str] = set()

    def may(self, verb: Verb, name: str) -> bool:
        del verb
        return name not in self.withdrawn


def test_a_right_that_was_withdrawn_ends_takes_that_were_like_the_last_one():
    caller = Limited()
    opened = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="emails")])
    subscription = Subscription(opened, "session", lambda _tokens: None, caller)
    assert wish(subscription, "emails").tubes == ["emails"]
    caller.withdrawn.add("emails")
    assert wish(subscription, "emails").tubes == []
