"""Every command has a complete definition, and no two answers share the first byte of a record."""

from dataclasses import fields
from typing import get_args

import pytest

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.registry import CODECS, DECODERS
from taskraft_service.queue.operations.batch import PARTS, BatchOperation
from taskraft_service.queue.operations.command_definition import Idempotent
from taskraft_service.queue.operations.registry import (
    ANSWERS,
    DEFINITIONS,
    Command,
    SessionCommand,
)
from taskraft_service.queue.operations.settlements import Settlement
from taskraft_service.versions import LOWEST

COMMANDS = get_args(Command)
NUMBER_MAX_OF_V1 = 50
"""Highest number of a command in release 0.1.0, see ``ClusterVersion.V1``."""


def test_each_command_of_the_union_has_a_definition():
    assert set(DEFINITIONS) == set(COMMANDS)


def test_each_command_can_be_decoded_from_the_log():
    assert len(DECODERS) == len(COMMANDS)


def is_too_early(number, since):
    """Return whether members that cannot decode a command would get it in their log."""
    return number > NUMBER_MAX_OF_V1 and since == LOWEST


def test_a_command_after_the_first_release_needs_a_later_cluster_version():
    early = [number for number, one in CODECS.items() if is_too_early(number, one.since)]
    assert early == [], "raise `since` of these codecs to the new cluster version"
    assert is_too_early(NUMBER_MAX_OF_V1 + 1, LOWEST)


def test_every_command_of_the_first_release_stays_allowed_in_its_cluster_version():
    changed = [
        number
        for number, codec in CODECS.items()
        if number <= NUMBER_MAX_OF_V1 and codec.since != LOWEST
    ]
    assert changed == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_a_command_with_a_request_id_keeps_its_answer(command):
    has_request_id = "request_id" in {field.name for field in fields(command)}
    assert has_request_id is not issubclass(command, Idempotent)
    assert (DEFINITIONS[command].answer is not None) is has_request_id


def test_the_first_bytes_of_kept_answers_are_unique():
    codecs = {id(one.answer): one.answer for one in DEFINITIONS.values() if one.answer is not None}
    assert sum(len(codec.kinds) for codec in codecs.values()) == len(ANSWERS)


def test_each_operation_of_a_batch_is_part_of_the_contract():
    assert set(get_args(BatchOperation)) == set(PARTS)
    branches = pb.BatchOperation.DESCRIPTOR.oneofs[0].fields
    assert [part.branch for part in PARTS.values()] == [branch.name for branch in branches]


NAMED_BY = {
    "tube": "the tube",
    "tubes": "the tubes, or the counts by tube",
    "settlements": "the lease tokens",
    "operations": "the operations of a batch, which are commands themselves",
    "name": "the tube, group or schedule",
    "request": "a bulk sweep, whose request names the tube",
    "number": "a bulk sweep",
    "session_id": "a session, which exists in all cells",
    "session_ids": "sessions, which exist in all cells",
}
OF_THE_CELL = {
    "Configure",
    "Startup",
    "SetWallOffset",
    "SetClusterVersion",
    "CommitCursor",
    "TrimFeed",
    "RecordAct",
}
"""Commands on the state of a whole cell: settings, leadership, clock and change feed."""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_a_command_names_what_it_addresses_without_the_state(command):
    """A later router can find the cell of a command from the command alone."""
    names = {field.name for field in fields(command)}
    assert (not names & set(NAMED_BY)) is (command.__name__ in OF_THE_CELL)
    if "session_id" in names:
        assert "tubes" in names or issubclass(command, get_args(SessionCommand))


def test_each_settlement_names_its_leases():
    for settlement in get_args(Settlement):
        assert "tokens" in {field.name for field in fields(settlement)}
