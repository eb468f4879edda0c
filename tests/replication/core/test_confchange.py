"""Membership changes are encoded in log entries; the same change has the same bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_replication.core.confchange import (
    LEAVE_JOINT,
    ConfChange,
    ConfChangeTransition,
    MemberChange,
    MemberChangeKind,
    decode,
    encode,
    of_entry,
)
from taskraft_replication.core.errors import ConfChangeMalformed
from taskraft_replication.core.types import Entry, EntryKind

ANY = st.builds(
    ConfChange,
    st.lists(
        st.builds(MemberChange, st.sampled_from(MemberChangeKind), st.integers(0, (1 << 64) - 1)),
        max_size=5,
    ).map(tuple),
    st.sampled_from(ConfChangeTransition),
    st.binary(max_size=20),
)


@given(ANY)
def test_a_change_is_decoded_as_it_was_encoded(change):
    assert decode(encode(change)) == change


@pytest.mark.parametrize(
    ("change", "written"),
    [
        (LEAVE_JOINT, ""),
        (ConfChange((MemberChange(MemberChangeKind.ADD_VOTER, 2),)), "000001000000000000000002"),
        (
            ConfChange(
                (
                    MemberChange(MemberChangeKind.REMOVE, 1),
                    MemberChange(MemberChangeKind.ADD_LEARNER, 258),
                ),
                ConfChangeTransition.JOINT_EXPLICIT,
                b"why",
            ),
            "020002010000000000000001030000000000000102776879",
        ),
    ],
)
def test_the_encoding_of_a_change_is_stable(change, written):
    assert encode(change).hex() == written


@given(st.binary(max_size=40))
def test_bytes_are_refused_or_decode_to_a_change(data):
    try:
        change = decode(data)
    except ConfChangeMalformed:
        return
    assert encode(change) == data or change == LEAVE_JOINT


@pytest.mark.parametrize("data", ["00", "0000", "000001", "030000", "00000104" + "00" * 8])
def test_a_damaged_change_is_refused(data):
    with pytest.raises(ConfChangeMalformed):
        decode(bytes.fromhex(data))


def test_only_membership_entries_contain_a_change():
    assert of_entry(Entry(1, 1, b"x")) is None
    assert of_entry(Entry(1, 1, b"", EntryKind.CONF_CHANGE_V2)) == LEAVE_JOINT


def test_only_the_empty_change_leaves_a_joint_configuration():
    assert LEAVE_JOINT.leaves_joint
    assert not LEAVE_JOINT.enters_joint
    assert ConfChange(transition=ConfChangeTransition.JOINT_EXPLICIT).enters_joint
