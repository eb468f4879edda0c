"""Calls that leave no entry: counted once, told once, and shown all the time."""

from taskraft.v1 import tube_service_pb2
from taskraft_service.leader.unlogged_calls import UnloggedCalls


def shown(notes):
    message = tube_service_pb2.TubeStatistics(tube="mail")
    notes.add_to(message, ["mail"])
    assert message.calls == message.calls_since_start
    return message.calls.take_timeout, message.calls.peek, message.calls.meta


def noted():
    notes = UnloggedCalls(lambda: True)
    notes.took_in_vain(["mail", "fax"])
    notes.looked_at("mail", 2, payload_omit=False)
    notes.looked_at("mail", 3, payload_omit=True)
    return notes


def test_what_is_being_told_counts_until_it_is_known():
    notes = noted()
    message = notes.fetch()
    assert [one.tube for one in message.tubes] == ["fax", "mail"]
    notes.looked_at("mail", 1, payload_omit=False)
    assert shown(notes) == (1, 3, 3)
    assert notes.fetch() is None, "one at a time"
    notes.told(known=True)
    assert shown(notes) == (0, 1, 0)


def test_what_was_not_told_is_told_the_next_time():
    notes = noted()
    notes.fetch()
    notes.looked_at("mail", 1, payload_omit=False)
    notes.told(known=False)
    assert shown(notes) == (1, 3, 3)
    (_, mail) = notes.fetch().tubes
    assert (mail.take_timeouts, mail.peeks, mail.metas) == (1, 3, 3)


def test_a_node_that_does_not_lead_notes_nothing():
    notes = UnloggedCalls(lambda: False)
    notes.took_in_vain(["mail"])
    notes.looked_at("mail", 2, payload_omit=False)
    assert notes.fetch() is None
