"""A leader prefers as many followers as a commit needs: the first to acknowledge recent entries."""

from __future__ import annotations

from taskraft_replication.core.types import ConfState, LogIndex, MemberId, Message, MessageKind
from taskraft_replication.driver.preferred_followers import PreferredFollowers
from taskraft_replication.peers.contract import PreferredSet

ONE, TWO, THREE, FOUR, FIVE = map(MemberId, range(1, 6))


class Choices:
    """The preferred followers of member 1 among ``voters``, and all reported choices."""

    def __init__(self, *voters: MemberId, learners: tuple[MemberId, ...] = ()) -> None:
        self.reported: list[PreferredSet] = []
        self.preferred = PreferredFollowers(ONE, self.reported.append)
        self.preferred.membership_changed(ConfState(voters=voters, learners=learners))

    def receive(self, *messages: Message) -> None:
        """Receive messages while entries up to 7 are committed."""
        self.preferred.received(messages, LogIndex(7))

    def acknowledge(self, *members: MemberId) -> PreferredSet:
        for member in members:
            self.receive(Message(MessageKind.APPEND_REPLY, ONE, member, index=LogIndex(8)))
        return self.reported[-1] if self.reported else None


def test_all_followers_are_preferred_until_enough_have_acknowledged():
    assert Choices(ONE, TWO, THREE).reported == []
    assert Choices(ONE, TWO, THREE, FOUR, FIVE).acknowledge(TWO) is None


def test_in_a_group_of_three_the_first_acknowledger_is_preferred():
    assert Choices(ONE, TWO, THREE).acknowledge(THREE) == {THREE}


def test_the_other_follower_is_preferred_after_it_completes_a_commit():
    assert Choices(ONE, TWO, THREE).acknowledge(THREE, THREE, TWO) == {TWO}


def test_in_a_group_of_five_two_are_preferred_and_a_silent_one_is_replaced():
    choices = Choices(ONE, TWO, THREE, FOUR, FIVE)
    assert choices.acknowledge(TWO, THREE) == {TWO, THREE}
    assert choices.acknowledge(TWO, FIVE) == {TWO, FIVE}


def test_a_learner_is_never_preferred():
    assert Choices(ONE, TWO, learners=(THREE,)).acknowledge(THREE) is None
    assert Choices(ONE, TWO, learners=(THREE,)).acknowledge(THREE, TWO) == {TWO}


def test_all_followers_are_preferred_in_a_joint_configuration():
    choices = Choices(ONE, TWO, THREE)
    assert choices.acknowledge(TWO) == {TWO}
    joint = ConfState(voters=(ONE, TWO, THREE), voters_outgoing=(ONE, TWO))
    choices.preferred.membership_changed(joint)
    assert choices.reported[-1] is None


def test_a_member_that_lost_its_vote_is_not_preferred():
    choices = Choices(ONE, TWO, THREE)
    assert choices.acknowledge(TWO) == {TWO}
    choices.preferred.membership_changed(ConfState(voters=(ONE, THREE, FOUR)))
    assert choices.reported[-1] is None


def test_a_leader_without_a_vote_needs_more_than_half_of_the_other_members():
    choices = Choices(TWO, THREE, FOUR)
    assert choices.acknowledge(TWO) is None


def test_an_unchanged_choice_is_not_reported():
    choices = Choices(ONE, TWO, THREE)
    choices.acknowledge(TWO, TWO, THREE, TWO)
    assert choices.reported == [{TWO}, {THREE}, {TWO}]


def test_only_acknowledgements_of_uncommitted_entries_count():
    choices = Choices(ONE, TWO, THREE)
    choices.acknowledge(TWO)
    choices.receive(
        Message(MessageKind.APPEND_REPLY, ONE, THREE, index=LogIndex(7)),
        Message(MessageKind.APPEND_REPLY, ONE, THREE, index=LogIndex(8), reject=True),
        Message(MessageKind.HEARTBEAT_REPLY, ONE, THREE, index=LogIndex(8)),
    )
    assert choices.reported == [{TWO}]
