"""Each limit of the native edge acts, is counted by its name, and harms no other connection.

grpc.aio does not tell which limit acted; ``test_connection_limits`` shows its limits.
"""

from contextlib import asynccontextmanager, suppress

import grpc
import grpc.aio
import pytest

from taskraft_service.api.rpc.rpc_server import CALLS_PER_CONNECTION_MAX, ServerLimits
from tests.cluster.hostile_frames import (
    ACK,
    CANCEL,
    DATA,
    END_STREAM,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
)
from tests.service.api.rpc.raw_connection import (
    OPENING,
    WIDE_OPENING,
    become_known,
    begun_call,
    connection,
    first_ended,
    part_of_message,
)
from tests.service.api.rpc.servers import SERVERS, server_class
from tests.service.api.rpc.test_servers import LIMITS, PATH, Handlers
from tests.turns import blocked_until, turns_until

pytestmark = pytest.mark.real_time

NATIVE = SERVERS[1:]
SMALL, LARGE = 60_000, 200_000
"""Sizes of messages below and above the size up to which the caller may be unknown."""
CONNECTIONS_MAX = 3


@asynccontextmanager
async def serving(edge, calls_max=1_000, **limits):
    """Run a server; yield the server, its port, and a function that counts how a limit acted."""
    server = server_class(edge)(
        Handlers().table(), ServerLimits(calls_max, CONNECTIONS_MAX, **(LIMITS | limits))
    )
    port = server.listen("127.0.0.1:0")
    await server.start()
    try:
        yield server, port
    finally:
        await server.stop(0)


def half_sent(size, part):
    """Return the frames of four calls whose messages do not arrive completely."""
    calls = ((begun_call(one, "Echo"), part_of_message(one, size, part)) for one in (3, 5, 7, 9))
    return b"".join(begin + message for begin, message in calls)


def resets():
    """Return calls that are cancelled at once."""
    for stream in range(1, 10_000, 2):
        yield begun_call(stream, "Wait") + frame(RST_STREAM, 0, stream, CANCEL)


def calls(count):
    """Return the beginnings of some calls that wait."""
    return b"".join(begun_call(stream, "Converse") for stream in range(1, 2 * count, 2))


def many_headers():
    """Return a call whose headers have 9 KiB."""
    filler = b"".join(b"\x00\x02x" + b"%c" % (97 + n) + b"\x64" + b"y" * 100 for n in range(26))
    return begun_call(1, "Echo")[9:] + filler * 3


def long_call():
    content = many_headers()
    return frame(1, 4 | END_STREAM, 1, content)


def echo(size):
    """Return a whole call."""
    return begun_call(1, "Echo") + part_of_message(1, size, size) + frame(DATA, END_STREAM, 1)


MESSAGES = b"".join(part_of_message(1, 10, 10) for _ in range(16))
SETTINGS_ACK = frame(SETTINGS, ACK, 0)
BUDGETS = {"unfinished_small_bytes_max": 100_000, "unfinished_bytes_max": 100_000}
ATTACKS = {
    "handshake_ms": ({"handshake_ms": 50}, PREFACE[:5], b""),
    "idle_ms": ({"idle_ms": 50}, OPENING, SETTINGS_ACK),
    "ping_ms": ({"ping_ms": 50}, OPENING, SETTINGS_ACK),
    "client_ping_ms_min": ({}, OPENING, frame(PING, 0, 0, bytes(8)) * 10),
    "resets": ({}, OPENING, b"".join(resets())),
    "protocol": ({}, OPENING, frame(DATA, 0, 0, b"no stream")),
    "calls_per_connection_max": ({}, OPENING, calls(2 * CALLS_PER_CONNECTION_MAX)),
    "calls_max": ({"calls_max": 1}, OPENING, calls(2)),
    "metadata_bytes_max": ({}, OPENING, long_call()),
    "received_bytes_max": ({}, OPENING, begun_call(1, "Echo") + part_of_message(1, 1 << 30, 1)),
    "sent_bytes_max": ({"sent_bytes_max": 10}, OPENING, echo(11)),
    "unfinished_unknown_bytes_max": (
        {"unfinished_unknown_bytes_max": 5},
        OPENING,
        begun_call(1, "Converse") + part_of_message(1, 2, 1),
    ),
    "unfinished_small_bytes_max": (BUDGETS, WIDE_OPENING, half_sent(SMALL, SMALL - 10_000)),
    "unfinished_bytes_max": (BUDGETS, WIDE_OPENING, half_sent(LARGE, 60_000)),
    "stall_ms": ({"stall_ms": 50}, OPENING, begun_call(1, "Echo") + part_of_message(1, 9, 1)),
    "unread_messages": ({}, OPENING, begun_call(1, "Ignore") + MESSAGES),
}
"""By limit: changed limits of the server, what a client sends at first, and what comes then."""
ELSEWHERE = {"connections_max", "unresponsive_ms"}
"""Limits with tests of their own below."""


@pytest.mark.parametrize("edge", NATIVE)
@pytest.mark.parametrize("limit", ATTACKS)
async def test_a_limit_that_acts_is_counted_once_it_acts(edge, limit):
    changed, opening, attack = ATTACKS[limit]
    async with (
        serving(edge, **changed) as (server, port),
        connection(port, opening) as (reader, writer),
    ):
        assert set(server.counts().limited) == set(ATTACKS) | ELSEWHERE
        assert not any(server.counts().limited.values())
        if opening == WIDE_OPENING:
            await become_known(reader, writer)
        with suppress(ConnectionError):  # the server may close the connection meanwhile
            writer.write(attack)
            await writer.drain()
        await turns_until(lambda: server.counts().limited[limit])
        acted = {name for name, number in server.counts().limited.items() if number}
        assert acted == {limit}


@pytest.mark.parametrize("edge", NATIVE)
async def test_connections_and_their_calls_are_counted_until_they_end(edge):
    async with serving(edge) as (server, port):
        for _ in range(2):
            async with (
                connection(port) as (_, first),
                connection(port) as (_, second),
                connection(port) as _,
            ):
                first.write(calls(3))
                second.write(calls(2))
                await turns_until(lambda: server.counts().in_use["calls"] == 5)
                assert server.counts().in_use["connections"] == CONNECTIONS_MAX
                async with connection(port) as (fourth, _):
                    with suppress(ConnectionError):
                        assert await fourth.read() == b""
            await turns_until(lambda: not any(server.counts().in_use.values()))
        assert server.counts().limited["connections_max"] == 2


@pytest.mark.parametrize("edge", NATIVE)
@pytest.mark.parametrize(
    ("size", "name"), [(SMALL, "unfinished_small_bytes"), (LARGE, "unfinished_bytes")]
)
async def test_the_bytes_of_unfinished_messages_are_counted_until_they_are_complete(
    edge, size, name
):
    async with (
        serving(edge) as (server, port),
        connection(port, WIDE_OPENING) as (reader, writer),
    ):
        await become_known(reader, writer)
        writer.write(begun_call(3, "Echo") + part_of_message(3, size, 50_000))
        await turns_until(lambda: server.counts().in_use[name] == 50_005)
        writer.write(frame(DATA, END_STREAM, 3, bytes(size - 50_000))[:9])
        writer.write(bytes(size - 50_000))
        if size == SMALL:
            await first_ended(reader, 1)
            assert server.counts().in_use[name] == 0


# ------------------------------------------------------------- an event loop that does not respond


def refused(channel, message):
    """Block the event loop of the server, and call until the server refuses."""
    while True:
        try:
            channel.unary_unary(PATH + "Echo")(message, timeout=0.2)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                return error


@pytest.mark.parametrize("edge", NATIVE)
async def test_calls_are_refused_while_the_event_loop_does_not_respond(edge):
    async with serving(edge, unresponsive_ms=100) as (server, port):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            waits = channel.unary_unary(PATH + "Echo").future(b"first", timeout=60)
            error = refused(channel, b"x")
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert "does not respond" in error.details()
            assert not waits.done(), "a call that was received keeps its place"
            await turns_until(waits.done)
            assert waits.result() == b"first"
            later = channel.unary_unary(PATH + "Echo").future(b"later", timeout=60)
            await turns_until(later.done)
            assert later.result() == b"later"
        assert server.counts().limited["unresponsive_ms"]


@pytest.mark.parametrize("edge", NATIVE)
async def test_messages_that_wait_for_the_event_loop_have_a_bound(edge):
    """The bound has room for two messages of ten."""
    limits = {"unresponsive_ms": 60_000, "unfinished_small_bytes_max": 2 * SMALL - 1}
    async with serving(edge, **limits) as (_, port):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            echo_of = channel.unary_unary(PATH + "Echo")
            all_calls = [echo_of.future(bytes(SMALL), timeout=60) for _ in range(10)]
            blocked_until(lambda: sum(one.done() for one in all_calls) == 8)
            await turns_until(lambda: all(one.done() for one in all_calls))
            codes = [one.code() for one in all_calls]
    assert codes.count(grpc.StatusCode.OK) == 2
    assert codes.count(grpc.StatusCode.UNAVAILABLE) == 8


@pytest.mark.parametrize("edge", NATIVE)
async def test_cancelled_calls_do_not_fill_the_list_of_events(edge):
    """The calls end, so they are within the maximum of calls; their events wait."""
    async with serving(edge, calls_max=5, unresponsive_ms=60_000) as (server, port):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:

            def cancelled():
                one = channel.unary_unary(PATH + "Echo").future(b"x", timeout=60)
                while not server.counts().in_use["calls"] and not one.done():
                    pass
                one.cancel()
                return one.code()

            for _ in range(100):
                if cancelled() is grpc.StatusCode.UNAVAILABLE:
                    break
                while server.counts().in_use["calls"]:
                    pass
        assert server.counts().limited["unresponsive_ms"] == 1
