"""Preferred are as many followers as a commit needs: the most recent first acknowledgers."""

from __future__ import annotations

from taskraft_replication.core.types import ConfState, LogIndex, MemberId, Message, MessageKind
from taskraft_replication.driver.preferred_followers import PreferredFollowers
from taskraft_replication.peers.contract import PreferredSet

ONE, TWO, THREE, FOUR, FIVE = map(MemberId, range(1, 6))


class Choices:
    """The fastest of member 1 among ``voters``, and what it has told."""

    def __init__(self, *voters: MemberId, learners: tuple[MemberId, ...] = ()) -> None:
        self.told: list[PreferredSet] = []
        self.preferred = PreferredFollowers(ONE, self.told.append)
        self.preferred.membership_changed(ConfState(voters=voters, learners=learners))

    def receive(self, *messages: Message) -> None:
        """Let messages come in while entries up to 7 are committed."""
        self.preferred.received(messages, LogIndex(7))

    def acknowledge(self, *members: MemberId) -> PreferredSet:
        for member in members:
            self.receive(Message(MessageKind.APPEND_REPLY, ONE, member, index=LogIndex(8)))
        return self.told[-1] if self.told else None


def test_everybody_is_asked_until_enough_have_answered():
    assert Choices(ONE, TWO, THREE).told == []
    assert Choices(ONE, TWO, THREE, FOUR, FIVE).acknowledge(TWO) is None


def test_of_three_members_the_follower_that_answered_first_is_asked_first():
    assert Choices(ONE, TWO, THREE).acknowledge(THREE) == {THREE}


def test_the_other_takes_its_place_when_a_commit_has_come_from_there():
    assert Choices(ONE, TWO, THREE).acknowledge(THREE, THREE, TWO) == {TWO}


def test_of_five_members_two_followers_are_asked_and_a_silent_one_is_replaced():
    choices = Choices(ONE, TWO, THREE, FOUR, FIVE)
    assert choices.acknowledge(TWO, THREE) == {TWO, THREE}
    assert choices.acknowledge(TWO, FIVE) == {TWO, FIVE}


def test_a_learner_is_never_needed():
    assert Choices(ONE, TWO, learners=(THREE,)).acknowledge(THREE) is None
    assert Choices(ONE, TWO, learners=(THREE,)).acknowledge(THREE, TWO) == {TWO}


def test_everybody_is_asked_while_the_membership_changes():
    choices = Choices(ONE, TWO, THREE)
    assert choices.acknowledge(TWO) == {TWO}
    joint = ConfState(voters=(ONE, TWO, THREE), voters_outgoing=(ONE, TWO))
    choices.preferred.membership_changed(joint)
    assert choices.told[-1] is None


def test_one_that_votes_no_more_is_not_counted_on():
    choices = Choices(ONE, TWO, THREE)
    assert choices.acknowledge(TWO) == {TWO}
    choices.preferred.membership_changed(ConfState(voters=(ONE, THREE, FOUR)))
    assert choices.told[-1] is None


def test_a_leader_that_does_not_vote_needs_more_than_half_of_the_others():
    choices = Choices(TWO, THREE, FOUR)
    assert choices.acknowledge(TWO) is None


def test_nothing_is_told_twice():
    choices = Choices(ONE, TWO, THREE)
    choices.acknowledge(TWO, TWO, THREE, TWO)
    assert choices.told == [{TWO}, {THREE}, {TWO}]


def test_only_what_a_commit_waits_for_counts():
    choices = Choices(ONE, TWO, THREE)
    choices.acknowledge(TWO)
    choices.receive(
        Message(MessageKind.APPEND_REPLY, ONE, THREE, index=LogIndex(7)),
        Message(MessageKind.APPEND_REPLY, ONE, THREE, index=LogIndex(8), reject=True),
        Message(MessageKind.HEARTBEAT_REPLY, ONE, THREE, index=LogIndex(8)),
    )
    assert choices.told == [{TWO}]
