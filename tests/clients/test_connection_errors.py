"""Failed connections raise an error with the cause and advice."""

import socket
import traceback

import pytest

from taskraft import AsyncClient, errors
from taskraft._connection_errors import connection_error
from tests.authority import Authority

pytestmark = pytest.mark.real_time

REFUSED = (
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
    "Failed to connect to remote host: Connection refused"
)


async def refusal(target, **options):
    async with AsyncClient(target, timeout="1s", **options) as client:
        with pytest.raises(errors.TaskraftError) as told:
            await client.tube("emails").put("a")
        return told.value


def test_a_known_connection_error_has_cause_and_advice():
    error = connection_error(REFUSED, "127.0.0.1:1")
    assert error.message == "127.0.0.1:1: connection refused, nothing listens on this port"
    assert "taskraft dev" in error.advice
    assert not error.is_sent


def test_an_unknown_cause_keeps_the_text_of_grpc():
    error = connection_error(
        "failed to connect to all addresses; last error: UNKNOWN: sunspots", "a:1"
    )
    assert (error.message, error.is_sent) == ("a:1: UNKNOWN: sunspots", False)
    broken = connection_error("Stream removed (Socket closed)", "a:1")
    assert (broken.message, broken.is_sent) == ("a:1: Stream removed (Socket closed)", True)


def test_a_traceback_shows_the_advice_below_the_message():
    lines = traceback.format_exception_only(connection_error(REFUSED, "a:1"))
    assert lines[-1].startswith("hint: Check that the cluster is running")


async def test_refused_connections_unknown_hosts_and_other_servers_are_reported():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert (
            await refusal(address)
        ).message == f"{address}: connection refused, nothing listens on this port"
    unknown = await refusal("no-such-host.invalid:7401")
    assert unknown.message.endswith(": the host name cannot be resolved")


async def test_tls_to_a_node_without_tls_is_reported(cluster, tmp_path):
    error = await refusal(cluster.target, ca=Authority(tmp_path).path)
    assert error.message.endswith("this client uses TLS, but the node does not")
    assert "Remove ca" in error.advice


async def test_an_error_of_a_node_comes_before_failed_connections(three):
    three.kill(1)
    three.kill(2)
    three.refuse("PutTasks", "NO_LEADER", times=100)
    error = await refusal(three.target)
    assert isinstance(error, errors.NoLeader)
    dead = sorted(
        f"{address}: connection refused, nothing listens on this port"
        for address in three.addresses[1:]
    )
    assert sorted(error.message.split("; ")[1:]) == dead
    assert error.advice.startswith("The client gave up after ")
    assert "The call has changed nothing. No leader was elected" in error.advice
    assert traceback.format_exception_only(error)[-1] == f"hint: {error.advice}\n"


async def test_an_unknown_outcome_comes_before_failed_connections(three):
    three.kill(1)
    three.kill(2)
    three.hold_puts()
    error = await refusal(three.target)
    assert isinstance(error, errors.DeadlinePassed)
    assert error.message.startswith(f"{three.addresses[0]} did not answer in time")
    assert "The change may have taken effect: read the state" in error.advice


async def test_the_last_error_of_a_read_does_not_speak_of_changes(three):
    three.refuse("GetTasks", "NO_LEADER", times=100)
    async with AsyncClient(three.target, timeout="1s") as client:
        with pytest.raises(errors.NoLeader) as told:
            await client.tube("emails").peek(1)
    assert "changed" not in told.value.advice
    assert "No leader was elected in that time" in told.value.advice
