"""A refused caller sees the same in both ways of a call: begun without a task, and with a task.

Each request is sent twice to one node over the native edge. The second time, no call is begun
without a task. Both times must have the same status, metadata, audit records and counts.
"""

from contextlib import contextmanager
from typing import NamedTuple

import grpc
import grpc.aio
import pytest
import structlog

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access import audit
from taskraft_service.access.principals import digest_of
from taskraft_service.api.rpc.answer_bytes import COUNTED_ANSWER_BYTES
from taskraft_service.api.rpc.live_calls import PrincipalShares
from taskraft_service.api.rpc.prompt_calls import PromptMethod
from taskraft_service.leader.command_submitter import CommandOutcome
from taskraft_service.record_budget import RecordBudget
from tests.authority import Authority
from tests.service.access.secured import (
    GRANTS,
    INVOICES,
    MAIL,
    Bearing,
    Stubs,
    secured,
    token_of,
    write_principals,
)
from tests.service.api.rpc.servers import SERVERS
from tests.service.conftest import create, put, reason_of, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

NATIVE = SERVERS[1:]
PUT, SETTLE = "/taskraft.v1.TaskService/PutTasks", "/taskraft.v1.TaskService/SettleTasks"
VICTIM = [("producer", "billing.*"), ("consumer", "billing.*")]
BEFORE = GRANTS | {"victim": VICTIM}


def bearer(principal):
    return (("authorization", f"Bearer {token_of(principal)}"),)


def put_of(tube=MAIL, **spec):
    task = task_pb2.TaskSpec(payload=b"x", **spec)
    return PUT, pb.PutTasksRequest(tube=tube, tasks=[task]).SerializeToString()


def settle_of(*tokens, **kind):
    kind = kind or {"ack": pb.Settlement.Ack()}
    settlement = pb.Settlement(tokens=tokens, **kind)
    return SETTLE, pb.SettleTasksRequest(settlements=[settlement]).SerializeToString()


class Seen(NamedTuple):
    """What a call shows to its caller and to the operators."""

    answer: bytes
    code: grpc.StatusCode
    text: str
    metadata: tuple
    records: list
    """Records of the audit log."""
    counts: dict
    """Finished calls by method and outcome."""
    reason: str = ""


class Ways:
    """A secured node, and a connection whose calls send their message with the call."""

    def __init__(self, node, channel, path, monkeypatch):
        self.node, self.channel, self.path = node, channel, path
        self.monkeypatch = monkeypatch
        self.components = node.server.components
        self.load = self.components.load
        self.live = self.load.live
        self.is_prompt = True
        self.tried = self.begun = 0
        begin = PromptMethod.begin

        def counted(method, *arguments):
            if not self.is_prompt:
                return None
            self.tried += 1
            prompt = begin(method, *arguments)
            self.begun += prompt is not None
            return prompt

        monkeypatch.setattr(PromptMethod, "begin", counted)

    async def seen(self, request, metadata, meanwhile=None):
        """Send a request; return what was seen of the call.

        ``meanwhile`` is awaited before the answer.
        """
        counts = self.components.endpoint.counts.by_outcome
        before = dict(counts)
        answer, code, text, trailing, reason = b"", grpc.StatusCode.OK, "", (), ""
        with structlog.testing.capture_logs() as written:
            path, raw = request
            call = self.channel.unary_unary(path)(raw, metadata=metadata, timeout=20)
            if meanwhile is not None:
                await meanwhile()
            try:
                answer = await call
                trailing = tuple(await call.trailing_metadata())
            except grpc.aio.AioRpcError as error:
                code, text, reason = error.code(), error.details(), reason_of(error)
                trailing = tuple(error.trailing_metadata())
        kinds = ("unauthenticated", "denied", "managed")
        records = [one for one in written if one["event"] in kinds]
        changed = {
            key: count - before.get(key, 0)
            for key, count in counts.items()
            if count != before.get(key, 0)
        }
        await turns_until(lambda: not self.load.calls)
        assert (self.load.calls, self.load.held_bytes, self.load.streams) == (0, 0, 0)
        assert not [one for name in BEFORE for one in self.live.of(name)]
        return Seen(answer, code, text, trailing, records, changed, reason)

    async def both(self, request, metadata, *, begins=False, meanwhile=None, between=None):
        """Send a request in both ways; return what was seen, which must be the same."""
        self.tried = self.begun = 0
        self.is_prompt = True
        first = await self.seen(request, metadata, meanwhile)
        assert (self.tried, self.begun) == (1, int(begins))
        if between is not None:
            between()
        self.is_prompt = False
        second = await self.seen(request, metadata, meanwhile)
        assert first == second
        assert first.counts.keys() == {(request[0], first.reason or "OK")}
        return first

    def hold_next(self):
        """Let the next command stay in flight; return a condition for its arrival."""
        submit, held = self.components.router.submit, []

        def submitted(encoded, deadline=None):
            if held:
                return submit(encoded, deadline)
            held.append(CommandOutcome())
            return held[0]

        self.monkeypatch.setattr(self.components.router, "submit", submitted)
        return lambda: bool(held)


@pytest.fixture
async def ways(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "failures", RecordBudget(1_000, 1_000.0, lambda: 0.0))
    path = write_principals(tmp_path / "access.toml", BEFORE)
    async with secured(tmp_path, access_file=path, edge="native") as node:
        root = await node.known("root")
        for tube in (MAIL, INVOICES, "secret"):
            await create(root, tube)
        channel = await node.channel()
        # The edge sends the message of a call with the call once it knows the client.
        known = Stubs(node.server, Bearing(channel, bearer("root")[0][1]))
        await put(known, b"first", tube="secret")
        yield Ways(node, channel, path, monkeypatch)


REFUSED = {
    "no token": (put_of(), (), "NO_CREDENTIALS"),
    "wrong token": (put_of(), (("authorization", "Bearer wrong"),), "NO_CREDENTIALS"),
    "another scheme": (put_of(), (("authorization", "Basic x"),), "NO_CREDENTIALS"),
    "two tokens": (put_of(), bearer("billing") * 2, "NO_CREDENTIALS"),
    "no token, malformed": ((PUT, b"\xff nonsense"), (), "NO_CREDENTIALS"),
    "bad person": (
        put_of(),
        (*bearer("root"), ("x-taskraft-person", "%00")),
        "NO_CREDENTIALS",
    ),
    "no right to put": (put_of(), bearer("mailer"), "NOT_ALLOWED"),
    "no right to the group": (put_of(group="other"), bearer("billing"), "NOT_ALLOWED"),
    "no right at all": (put_of("secret"), bearer("nobody"), "NOT_ALLOWED"),
    "no right to take": (settle_of(1), bearer("billing"), "NOT_ALLOWED"),
    "no right to move": (
        settle_of(1, release=pb.Settlement.Release(move_to="secret")),
        bearer("mailer"),
        "NOT_ALLOWED",
    ),
    "malformed": ((PUT, b"\xff nonsense"), bearer("billing"), "INVALID_FIELD"),
    "invalid field": (put_of(priority=-1, ttr_ms=-1), bearer("billing"), "INVALID_FIELD"),
    "right and invalid field": (put_of("no tube?"), bearer("billing"), "NOT_ALLOWED"),
}


@pytest.mark.parametrize("_edge", NATIVE)
@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_caller_sees_the_same_in_both_ways(ways, case, _edge):
    request, metadata, reason = REFUSED[case]
    seen = await ways.both(request, metadata)
    assert seen.reason == reason
    event = {"NO_CREDENTIALS": "unauthenticated", "NOT_ALLOWED": "denied"}.get(reason)
    assert [one["event"] for one in seen.records] == ([event] if event else [])


@pytest.mark.parametrize("_edge", NATIVE)
async def test_a_call_that_the_queue_refuses_is_begun_and_looks_the_same(ways, _edge):
    seen = await ways.both(put_of("billing.gone"), bearer("billing"), begins=True)
    assert seen.reason == "TUBE_NOT_FOUND"
    assert not seen.records


@pytest.mark.parametrize("_edge", NATIVE)
async def test_a_lease_of_another_principal_is_refused_in_both_ways(ways, _edge):
    mailer = await ways.node.known("mailer")
    await put(await ways.node.known("root"), b"x", tube=MAIL)
    [task] = (await take(mailer, tube=MAIL)).tasks
    request, errors = settle_of(task.token), []
    ways.begun = 0
    for ways.is_prompt in (True, False):
        seen = await ways.seen(request, bearer("rival"))
        errors.append([str(one) for one in pb.SettleTasksResponse.FromString(seen.answer).errors])
        assert seen.counts == {(SETTLE, "OK"): 1}
        assert not seen.records
    assert ways.begun == 1
    assert errors[0] == errors[1]
    assert "LEASE_STALE" in errors[0][0]
    ways.is_prompt = True
    own = await ways.seen(request, bearer("mailer"))
    assert ways.begun == 2
    assert not pb.SettleTasksResponse.FromString(own.answer).errors


@contextmanager
def lowered(ways, limit):
    """Set a maximum of the calls of a node so low that the next call exceeds the maximum."""
    if limit == "calls_max":
        before, ways.load.calls_max = ways.load.calls_max, 0
        yield
        ways.load.calls_max = before
        return
    before = ways.live.shares
    calls_max = 0 if limit == "calls_share_max" else 10
    connections_max = 0 if limit == "connections_share_max" else 10
    ways.live.shares = PrincipalShares(calls_max, 10, connections_max)
    yield
    ways.live.shares = before


@pytest.mark.parametrize("_edge", NATIVE)
@pytest.mark.parametrize("limit", ["calls_max", "calls_share_max", "connections_share_max"])
async def test_a_call_above_a_limit_looks_the_same_in_both_ways(ways, limit, _edge):
    with lowered(ways, limit):
        seen = await ways.both(put_of(), bearer("billing"))
    assert seen.reason == "OVERLOADED"
    assert limit.encode() in dict(seen.metadata)["grpc-status-details-bin"]


@pytest.mark.parametrize("_edge", NATIVE)
async def test_a_begun_call_counts_in_the_share_of_its_principal(ways, _edge):
    ways.live.shares = PrincipalShares(1, 10, 10)
    arrived = ways.hold_next()
    path, raw = put_of()
    ways.begun = 0
    first = ways.channel.unary_unary(path)(raw, metadata=bearer("billing"))
    await turns_until(arrived)
    assert ways.begun == 1
    assert len(ways.live.of("billing")) == ways.load.calls == 1
    for ways.is_prompt in (True, False):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ways.channel.unary_unary(path)(raw, metadata=bearer("billing"))
        assert reason_of(caught.value) == "OVERLOADED"
        await ways.channel.unary_unary(path)(raw, metadata=bearer("biller"))
    first.cancel()
    await turns_until(lambda: not ways.load.calls)
    assert not ways.live.of("billing")
    assert ways.load.held_bytes == 0


@pytest.mark.parametrize("_edge", NATIVE)
async def test_a_large_answer_counts_for_its_principal_in_both_ways(ways, _edge):
    room, counted = ways.load.answers, []
    add = room.add

    def recorded(size, principal):
        counted.append((principal, size))
        add(size, principal)

    ways.monkeypatch.setattr(type(room), "add", lambda _room, *of: recorded(*of))
    ways.begun = 0
    for ways.is_prompt in (True, False):
        answer = (await ways.seen(settle_of(*range(1_000, 1_900)), bearer("mailer"))).answer
        assert len(pb.SettleTasksResponse.FromString(answer).errors) == 900
        assert len(answer) > COUNTED_ANSWER_BYTES
        assert counted == [("mailer", len(answer)), ("mailer", -len(answer))]
        counted.clear()
        assert not room.held.count_with(0, "mailer")[0]
    assert ways.begun == 1


NARROWED = BEFORE | {"victim": [("reader", "*")]}
REMOVED = GRANTS


def revoke(path, kind):
    if kind == "token replaced":
        victim = digest_of_token("victim")
        path.write_text(path.read_text().replace(victim, digest_of_token("another")))
    else:
        write_principals(path, NARROWED if kind == "grant removed" else REMOVED)


def digest_of_token(principal):
    return digest_of(token_of(principal))


@pytest.mark.parametrize("_edge", NATIVE)
@pytest.mark.parametrize("method", ["put", "settle"])
@pytest.mark.parametrize("kind", ["principal removed", "token replaced", "grant removed"])
async def test_a_caller_that_is_revoked_in_flight_sees_the_same_in_both_ways(
    ways, kind, method, _edge
):
    def restore():
        write_principals(ways.path, BEFORE)
        ways.node.server.reload()

    async def revoked():
        arrived = ways.hold_next()
        await turns_until(arrived)
        assert len(ways.live.of("victim")) == 1
        revoke(ways.path, kind)
        ways.node.server.reload()

    request = put_of() if method == "put" else settle_of(7)
    seen = await ways.both(
        request, bearer("victim"), begins=True, meanwhile=revoked, between=restore
    )
    assert (seen.code, seen.reason) == (grpc.StatusCode.UNAVAILABLE, "COMMIT_UNKNOWN")
    denied = ["denied"] if kind == "grant removed" else []
    assert [one["event"] for one in seen.records] == denied


@pytest.mark.parametrize("_edge", NATIVE)
async def test_a_begun_call_that_passes_the_check_after_a_change_goes_on(ways, _edge):
    path, raw = put_of()
    arrived = ways.hold_next()
    ways.begun = 0
    call = ways.channel.unary_unary(path)(raw, metadata=bearer("victim"))
    await turns_until(arrived)
    (live,) = ways.live.of("victim")
    write_principals(ways.path, BEFORE | {"victim": [*VICTIM, ("reader", "*")]})
    ways.node.server.reload()
    await turns_until(lambda: live.version == live.caller.version)
    assert live.ended_by is None
    assert ways.begun == len(ways.live.of("victim")) == 1
    call.cancel()
    await turns_until(lambda: not ways.load.calls)
    assert not ways.live.of("victim")


@pytest.mark.parametrize("_edge", NATIVE)
async def test_a_call_with_a_certificate_is_begun_and_ends_with_the_certificate(
    tmp_path, monkeypatch, _edge
):
    users = Authority(tmp_path, "users")
    path = write_principals(tmp_path / "access.toml", BEFORE, victim=["victim.example"])
    async with secured(tmp_path, tls_client_ca=users.path, access_file=path, edge="native") as node:
        own = users.sign("own", "victim.example")
        channel = await node.channel(
            grpc.ssl_channel_credentials(
                node.authority.path.read_bytes(), own.key.read_bytes(), own.certificate.read_bytes()
            )
        )
        await create(Stubs(node.server, Bearing(channel, bearer("root")[0][1])), MAIL)
        ways = Ways(node, channel, path, monkeypatch)
        assert (await ways.seen(put_of(), ())).code is grpc.StatusCode.OK
        assert ways.begun == 1

        async def expired():
            arrived = ways.hold_next()
            await turns_until(arrived)
            (call,) = ways.live.of("victim")
            ways.live.end_expired(call.caller.expires_at)

        seen = await ways.both(put_of(), (), begins=True, meanwhile=expired)
        assert (seen.code, seen.reason) == (grpc.StatusCode.UNAVAILABLE, "COMMIT_UNKNOWN")


@pytest.mark.parametrize("_edge", NATIVE)
async def test_a_stopping_node_refuses_in_both_ways(ways, _edge):
    ways.load.is_draining = True
    seen = await ways.both(put_of(), bearer("billing"))
    assert seen.reason == "DRAINING"
    ways.load.is_draining = False
