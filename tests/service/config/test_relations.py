"""Every amount in the settings has limits, and the settings are consistent."""

import pytest

from taskraft_replication.core.config import ENTRY_BYTES_MAX, UNCOMMITTED_BYTES_MAX, RaftConfig
from taskraft_replication.peers.grpc_peers import FRAME_BYTES_LIMIT
from taskraft_replication.peers.send_queue import FRAME_BYTES_MAX
from taskraft_service import limits
from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.config.relations import RELATIONS, SettingsConflict
from taskraft_service.config.server_config import (
    ServerConfig,
    read_config,
)
from taskraft_service.config.storage import ENTRY_COMMANDS_BYTES_MAX
from taskraft_service.leader.waiting_consumer import (
    CLAIM_BYTES_PER_ENTRY_MAX,
    CLAIM_STEPS_PER_ENTRY_MAX,
    STEPS_PER_CLAIM,
)
from taskraft_service.queue.limits import Limits

FRAMING_BYTES_MAX = 16
"""Upper bound of the bytes in front of each command in an entry."""


@pytest.fixture(autouse=True)
def _named(monkeypatch):
    monkeypatch.setenv("TASKRAFT_NODE_NAME", "n-0")


def amounts():
    return {
        name: {
            word: getattr(each, word)
            for each in field.metadata
            for word in ("ge", "le")
            if getattr(each, word, None) is not None
        }
        for name, field in ServerConfig.model_fields.items()
        if field.annotation is int
    }


def test_every_amount_has_a_minimum_and_a_maximum():
    assert amounts()
    assert {name for name, bounds in amounts().items() if set(bounds) != {"ge", "le"}} == set()


@pytest.mark.parametrize("name", sorted(amounts()))
def test_an_amount_outside_its_limits_is_refused_by_name(name, monkeypatch):
    for bound, step in (("ge", -1), ("le", 1)):
        monkeypatch.setenv(f"TASKRAFT_{name.upper()}", str(amounts()[name][bound] + step))
        with pytest.raises(ConfigInvalid, match=f"^{name}: "):
            read_config()


CONFLICTS = {
    "tick_ms heartbeat_ms": {"tick_ms": 200},
    "heartbeat_ms election_timeout_ms": {"heartbeat_ms": 200},
    "tick_ms disk_stall_ms": {"disk_stall_ms": 99},
    "disk_stall_ms disk_hang_ms": {"disk_hang_ms": 1999},
    "entry_commands_max pending_commands_max": {"pending_commands_max": 999},
    "entry_bytes_max entries_in_flight_max": {
        "entry_bytes_max": 17 << 20,
        "entries_in_flight_max": 4,
    },
    "payload_bytes_max temporary_bytes_max": {"temporary_bytes_max": 1},
    "feed_partitions feed_bytes_max": {"feed_partitions": 17, "feed_bytes_max": 1 << 20},
    "log_segment_bytes log_flush_bytes": {"log_segment_bytes": (16 << 20) + 1},
    "log_segment_bytes write_buffer_bytes disk_low_bytes": {"disk_low_bytes": (48 << 20) - 1},
}


def test_every_conflict_has_an_example():
    assert [*CONFLICTS] == [" ".join(relation.settings) for relation in RELATIONS]


@pytest.mark.parametrize("names", CONFLICTS)
def test_conflicting_settings_are_refused_with_all_their_names(names, monkeypatch):
    for name, value in CONFLICTS[names].items():
        monkeypatch.setenv(f"TASKRAFT_{name.upper()}", str(value))
    with pytest.raises(SettingsConflict) as refused:
        read_config()
    assert refused.value.settings == tuple(names.split())
    text = str(refused.value)
    assert all(name in text for name in names.split())
    assert "\n" not in text


@pytest.mark.parametrize("name", ["temporary_bytes_max", "disk_low_bytes"])
def test_a_disabled_limit_conflicts_with_nothing(name, monkeypatch):
    monkeypatch.setenv(f"TASKRAFT_{name.upper()}", "0")
    assert getattr(read_config(), name) == 0


def test_the_largest_entry_of_any_configuration_can_be_read():
    commands = max(ENTRY_COMMANDS_BYTES_MAX, limits.COMMAND_BYTES_MAX)
    assert amounts()["entry_bytes_max"]["le"] == ENTRY_COMMANDS_BYTES_MAX
    names = Limits().tubes_max * (limits.NAME_BYTES_MAX + FRAMING_BYTES_MAX)
    takes = CLAIM_BYTES_PER_ENTRY_MAX + names + limits.TAKE_TYPES_MAX * limits.TYPE_BYTES_MAX
    takes_max = CLAIM_STEPS_PER_ENTRY_MAX // STEPS_PER_CLAIM + 1
    count = amounts()["entry_commands_max"]["le"] + takes_max + 1
    assert commands + takes + count * FRAMING_BYTES_MAX <= ENTRY_BYTES_MAX
    assert RaftConfig(1).entry_bytes_max == ENTRY_BYTES_MAX


def test_the_largest_command_fits_into_an_entry():
    message = amounts()["payload_bytes_max"]["le"] + limits.HEADERS_BYTES_MAX
    assert message < limits.MESSAGE_BYTES_MAX < limits.COMMAND_BYTES_MAX
    assert limits.RESULT_BYTES_MAX < limits.MESSAGE_BYTES_MAX
    assert amounts()["pending_bytes_max"]["ge"] >= limits.COMMAND_BYTES_MAX
    assert limits.COMMAND_BYTES_MAX <= UNCOMMITTED_BYTES_MAX


def test_the_largest_entry_fits_a_frame():
    assert ENTRY_BYTES_MAX + FRAME_BYTES_MAX < FRAME_BYTES_LIMIT
