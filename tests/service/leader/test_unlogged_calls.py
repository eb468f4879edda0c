"""Calls without log entries: counted once, logged once, always included in statistics."""

from taskraft.v1 import tube_service_pb2
from taskraft_service.leader.unlogged_calls import UnloggedCalls


def shown(unlogged_calls):
    message = tube_service_pb2.TubeStatistics(tube="mail")
    unlogged_calls.add_to(message, ["mail"])
    assert message.calls == message.calls_since_start
    return message.calls.take_timeout, message.calls.peek, message.calls.meta


def noted():
    unlogged_calls = UnloggedCalls(lambda: True)
    unlogged_calls.count_take_timeout(["mail", "fax"])
    unlogged_calls.count_peeks("mail", 2, payload_omit=False)
    unlogged_calls.count_peeks("mail", 3, payload_omit=True)
    return unlogged_calls


def test_counts_in_flight_are_included_until_they_are_applied():
    unlogged_calls = noted()
    message = unlogged_calls.fetch()
    assert [one.tube for one in message.tubes] == ["fax", "mail"]
    unlogged_calls.count_peeks("mail", 1, payload_omit=False)
    assert shown(unlogged_calls) == (1, 3, 3)
    assert unlogged_calls.fetch() is None, "one at a time"
    unlogged_calls.fetch_done(known=True)
    assert shown(unlogged_calls) == (0, 1, 0)


def test_counts_that_were_not_applied_are_fetched_again():
    unlogged_calls = noted()
    unlogged_calls.fetch()
    unlogged_calls.count_peeks("mail", 1, payload_omit=False)
    unlogged_calls.fetch_done(known=False)
    assert shown(unlogged_calls) == (1, 3, 3)
    (_, mail) = unlogged_calls.fetch().tubes
    assert (mail.take_timeouts, mail.peeks, mail.metas) == (1, 3, 3)


def test_a_node_that_does_not_lead_counts_nothing():
    unlogged_calls = UnloggedCalls(lambda: False)
    unlogged_calls.count_take_timeout(["mail"])
    unlogged_calls.count_peeks("mail", 2, payload_omit=False)
    assert unlogged_calls.fetch() is None
