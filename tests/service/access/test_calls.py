"""What callers of a real node may do: nothing without credentials, and what their grants say."""

import asyncio

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from replication.tls_files import TlsUnusable
from service.api.status import STATUS_KEY
from service.assembly import Server
from taskraft.v1 import (
    cluster_service_pb2,
    feed_service_pb2,
    group_service_pb2,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from tests.authority import DAY, Authority
from tests.service.access.secured import (
    GRANTS,
    Bearing,
    Stubs,
    secured,
    token_of,
    write_book,
)
from tests.service.access.test_rules import methods_of_the_contract
from tests.service.conftest import ack, config_in, create, put, reason_of, take

MAIL, INVOICES = "billing.mail", "billing.invoices"


@pytest.fixture
async def node(tmp_path):
    async with secured(tmp_path) as one:
        root = await one.known("root")
        for tube in (MAIL, INVOICES, "secret"):
            await create(root, tube)
        yield one


async def refusal(call):
    """Return reason and metadata with which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    packed = dict(caught.value.trailing_metadata())[STATUS_KEY]
    info = error_details_pb2.ErrorInfo()
    status_pb2.Status.FromString(packed).details[0].Unpack(info)
    return info.reason, dict(info.metadata)


async def refused(call):
    return (await refusal(call))[0]


def path_of(method):
    return f"/{method.containing_service.full_name}/{method.name}"


async def answer_to(channel, method, raw, **options):
    """Call a method with bytes; return the reason of the refusal."""
    kind = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, True): channel.stream_stream,
    }[method.client_streaming, method.server_streaming]
    call = kind(path_of(method))(*([] if method.client_streaming else [raw]), **options)
    if method.client_streaming:
        await call.write(raw)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if method.server_streaming else call)
    return caught.value.code(), reason_of(caught.value)


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic cm9vdDpyb290", "Bearer "])
async def test_no_method_looks_at_a_request_without_credentials(node, authorization):
    channel = await node.channel()
    metadata = (("authorization", authorization),) if authorization else ()
    for method in methods_of_the_contract():
        answer = await answer_to(channel, method, b"\xff nonsense", metadata=metadata, timeout=10)
        assert answer == (grpc.StatusCode.UNAUTHENTICATED, "NO_CREDENTIALS"), method.full_name


async def test_with_two_tokens_nobody_is_let_in(node):
    tokens = tuple(("authorization", f"Bearer {token_of(one)}") for one in ("root", "root"))
    tubes = (await node.known("root")).tubes
    channel = await node.channel()
    call = channel.unary_unary("/taskraft.v1.TubeService/ListTubes")
    assert await refused(call(b"", metadata=tokens)) == "NO_CREDENTIALS"
    assert await tubes.ListTubes(tube_service_pb2.ListTubesRequest())


async def test_a_principal_without_grants_may_do_nothing(node):
    channel = await node.channel()
    metadata = (("authorization", f"Bearer {token_of('nobody')}"),)
    # An empty batch asks for nothing, and is wrong for that.
    open_to_all = {"GetServerInfo", "GetClusterState", "ExecuteBatch"}
    for method in methods_of_the_contract():
        if method.name not in open_to_all:
            answer = await answer_to(channel, method, b"", metadata=metadata, timeout=10)
            assert answer[0] in (
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.UNIMPLEMENTED,
            ), method.full_name


async def test_a_claim_to_be_somebody_is_not_believed_on_this_port(node):
    channel = await node.channel()
    call = channel.unary_unary("/taskraft.v1.TubeService/ListTubes")
    claim = (("x-taskraft-principal", "root"), ("x-taskraft-hops", "1"))
    assert await refused(call(b"", metadata=claim)) == "NO_CREDENTIALS"
    nobody = (*claim, ("authorization", f"Bearer {token_of('nobody')}"))
    assert await refused(call(b"", metadata=nobody)) == "NOT_ALLOWED"


async def test_the_refusal_says_what_is_missing(node):
    billing = await node.known("billing")
    await put(billing, b"x", tube=MAIL)
    assert await refusal(put(billing, b"x", tube="secret")) == (
        "NOT_ALLOWED",
        {"principal": "billing", "verb": "put", "tube": "secret"},
    )
    assert await refused(put(billing, b"x", tube="nowhere")) == "NOT_ALLOWED"
    root = await node.known("root")
    request = tube_service_pb2.GetStatisticsRequest(tubes=["secret"])
    assert (await root.tubes.GetStatistics(request)).total.tasks.total == 0


async def test_each_role_may_do_its_part_and_no_other(node):
    billing, mailer, auditor = [await node.known(one) for one in ("billing", "mailer", "auditor")]
    listing = pb.ListTasksRequest(tube=MAIL)
    deletion = pb.DeleteTasksRequest(tube=MAIL, selector=task_pb2.TaskSelector(ids=[1]))
    await put(billing, b"x", tube=MAIL)
    assert [len((await one.tasks.ListTasks(listing)).tasks) for one in (mailer, auditor)] == [1, 1]
    taken = await take(mailer, tube=MAIL)
    assert not (await ack(mailer, taken.tasks)).errors
    for call in (
        take(billing, tube=MAIL),
        billing.tasks.ListTasks(listing),
        billing.tasks.DeleteTasks(deletion),
        put(mailer, b"x", tube=MAIL),
        mailer.tasks.DeleteTasks(deletion),
        take(auditor, tube=MAIL),
        put(auditor, b"x", tube=MAIL),
        auditor.tubes.DropTube(tube_service_pb2.DropTubeRequest(name=MAIL)),
        mailer.cluster.Configure(cluster_service_pb2.ConfigureRequest()),
    ):
        assert await refused(call) == "NOT_ALLOWED"


async def test_every_tube_of_a_take_is_looked_at_and_nothing_is_taken(node):
    root, mailer = await node.known("root"), await node.known("mailer")
    await put(root, b"x", tube=MAIL)
    both = pb.TakeTasksRequest(
        sources=[pb.TakeSource(tube=MAIL), pb.TakeSource(tube=INVOICES)], wait_ms=0
    )
    assert await refusal(mailer.tasks.TakeTasks(both)) == (
        "NOT_ALLOWED",
        {"principal": "mailer", "verb": "take", "tube": INVOICES},
    )
    assert [task.attempt for task in node.server.machine.queue.get_tasks(MAIL, [1])] == [0]


@pytest.mark.parametrize("wait_ms", [0, 5_000])
async def test_a_pattern_stands_for_the_tubes_that_the_caller_may_take_from(node, wait_ms):
    root, mailer = await node.known("root"), await node.known("mailer")
    await put(root, b"hidden", tube=INVOICES)
    await put(root, b"hidden", tube="secret")
    await put(root, b"seen", tube=MAIL)
    taken = await take(mailer, tube="*", wait_ms=wait_ms)
    assert [task.spec.payload for task in taken.tasks] == [b"seen"]


async def test_a_waiting_pattern_does_not_see_a_tube_that_is_made_later(node):
    root, mailer = await node.known("root"), await node.known("mailer")
    waiting = asyncio.ensure_future(take(mailer, tube="*", wait_ms=30_000))
    await mailer.waiting(1, tube=MAIL)
    await create(root, "later")
    await put(root, b"hidden", tube="later")
    await put(root, b"seen", tube=MAIL)
    assert [task.spec.payload for task in (await waiting).tasks] == [b"seen"]


async def test_lists_and_counts_hold_only_what_the_caller_may_read(node):
    root, mailer, auditor = [await node.known(one) for one in ("root", "mailer", "auditor")]
    await put(root, b"x", tube="secret")
    await put(root, b"x", tube=MAIL)

    async def tubes_of(caller):
        listed = await caller.tubes.ListTubes(tube_service_pb2.ListTubesRequest())
        counted = await caller.tubes.GetStatistics(tube_service_pb2.GetStatisticsRequest())
        names = [tube.name for tube in listed.tubes]
        assert names == [tube.tube for tube in counted.tubes]
        return names, counted.total.tasks.total

    assert await tubes_of(root) == ([INVOICES, MAIL, "secret"], 2)
    assert await tubes_of(auditor) == ([INVOICES, MAIL], 1)
    assert await tubes_of(mailer) == ([MAIL], 1)


# ------------------------------------------------------------------------------ sessions, leases


async def session_of(caller):
    request = session_service_pb2.OpenSessionRequest(ttr_ms=60_000)
    return (await caller.sessions.OpenSession(request)).session


async def test_a_session_is_of_no_use_to_anybody_else(node):
    mailer, rival, root = [await node.known(one) for one in ("mailer", "rival", "root")]
    own = await session_of(mailer)
    assert own.owner == "mailer"
    for caller in (rival, root):
        for call in (
            take(caller, tube=MAIL, session_id=own.session_id),
            caller.sessions.CloseSession(
                session_service_pb2.CloseSessionRequest(session_id=own.session_id)
            ),
        ):
            assert await refused(call) == "SESSION_NOT_FOUND"
    keep = session_service_pb2.KeepSessionsRequest(session_ids=[own.session_id])
    kept = await rival.sessions.KeepSessions(keep)
    assert (len(kept.sessions), [error.item for error in kept.errors]) == (0, [0])
    assert len((await mailer.sessions.KeepSessions(keep)).sessions) == 1
    closing = session_service_pb2.CloseSessionRequest(session_id=own.session_id, request_id="close")
    for _ in range(2):
        assert (await mailer.sessions.CloseSession(closing)).released == 0


async def test_everybody_sees_their_own_sessions_and_operators_all(node):
    mailer, rival, root = [await node.known(one) for one in ("mailer", "rival", "root")]
    await session_of(mailer)
    await session_of(rival)

    async def owners(caller):
        request = session_service_pb2.ListSessionsRequest()
        listed = await caller.sessions.ListSessions(request)
        return sorted(one.owner for one in listed.sessions)

    assert await owners(mailer) == ["mailer"]
    assert await owners(rival) == ["rival"]
    assert await owners(root) == ["mailer", "rival"]


async def test_a_lease_of_anothers_session_is_as_stale_as_one_that_never_was(node):
    root, mailer, rival = [await node.known(one) for one in ("root", "mailer", "rival")]
    await put(root, b"a", b"b", tube=MAIL)
    session = await session_of(mailer)
    theirs = (await take(mailer, tube=MAIL, tasks_max=1, session_id=session.session_id)).tasks
    mine = (await take(rival, tube=MAIL, tasks_max=1)).tasks
    answer = await ack(rival, [*theirs, *mine])
    assert [(one.item, one.error.reason) for one in answer.errors] == [(0, 20)]
    assert not (await ack(mailer, theirs)).errors


@pytest.mark.parametrize("is_batch", [False, True])
async def test_an_atomic_settlement_with_a_lease_of_another_settles_nothing(node, is_batch):
    root, mailer, rival = [await node.known(one) for one in ("root", "mailer", "rival")]
    await put(root, b"a", b"b", tube=MAIL)
    session = await session_of(mailer)
    theirs = (await take(mailer, tube=MAIL, tasks_max=1, session_id=session.session_id)).tasks
    mine = (await take(rival, tube=MAIL, tasks_max=1)).tasks
    tokens = [task.token for task in (*mine, *theirs)]
    settle = pb.SettleTasksRequest(
        settlements=[pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())], atomic=True
    )
    call = (
        rival.tasks.ExecuteBatch(
            pb.ExecuteBatchRequest(operations=[pb.BatchOperation(settle=settle)])
        )
        if is_batch
        else rival.tasks.SettleTasks(settle)
    )
    assert await refused(call) == "LEASE_STALE"
    assert not (await ack(rival, mine)).errors
    assert not (await ack(mailer, theirs)).errors


async def test_a_lease_in_a_tube_without_a_right_cannot_be_settled(node):
    root, mailer = await node.known("root"), await node.known("mailer")
    await put(root, b"x", tube="secret")
    taken = await take(root, tube="secret")
    assert [one.error.reason for one in (await ack(mailer, taken.tasks)).errors] == [20]
    assert not (await ack(root, taken.tasks)).errors


async def test_a_guess_at_the_next_lease_cannot_meet_it(node):
    root, mailer = await node.known("root"), await node.known("mailer")
    await put(root, b"a", b"b", tube="secret")
    token = (await take(root, tube="secret", tasks_max=1)).tasks[0].token
    guess = pb.SettleTasksRequest(
        settlements=[pb.Settlement(tokens=[token + 1], ack=pb.Settlement.Ack())]
    )
    # Both in one entry: the take goes first.
    taking = asyncio.ensure_future(take(root, tube="secret", tasks_max=1))
    settling = asyncio.ensure_future(mailer.tasks.SettleTasks(guess))
    (task,) = (await taking).tasks
    assert task.token == token + 1
    assert [one.error.reason for one in (await settling).errors] == [20]
    assert not (await ack(root, [task])).errors


async def test_a_repeated_settlement_gets_its_first_answer(node):
    root, mailer, rival = [await node.known(one) for one in ("root", "mailer", "rival")]
    await put(root, b"a", b"b", tube=MAIL)
    session = await session_of(rival)
    theirs = (await take(rival, tube=MAIL, tasks_max=1, session_id=session.session_id)).tasks
    mine = (await take(mailer, tube=MAIL, tasks_max=1)).tasks
    tokens = [task.token for task in (*theirs, *mine)]
    request = pb.SettleTasksRequest(
        request_id="once",
        settlements=[pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())],
    )
    first = await mailer.tasks.SettleTasks(request)
    assert [one.item for one in first.errors] == [0]
    assert (await mailer.tasks.SettleTasks(request)).errors == first.errors


# ------------------------------------------------------------------------------ streams


async def subscribed(caller, *tubes, **fields):
    stream = caller.tasks.Subscribe(timeout=30)
    sources = [pb.TakeSource(tube=tube) for tube in tubes]
    await stream.write(
        pb.SubscribeRequest(
            open=pb.SubscribeRequest.Open(sources=sources, **fields),
            credit=pb.SubscribeRequest.Credit(tasks=10),
        )
    )
    return stream


async def tasks_of(stream):
    while True:
        message = await stream.read()
        if message.tasks:
            return message.tasks


async def ended(stream):
    """Return the code with which a stream ends."""
    try:
        while await stream.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return await stream.code()


async def test_a_stream_is_opened_only_on_tubes_that_may_be_taken_from(node):
    mailer, rival = await node.known("mailer"), await node.known("rival")
    assert await ended(await subscribed(mailer, MAIL, INVOICES)) is (
        grpc.StatusCode.PERMISSION_DENIED
    )
    session = await session_of(rival)
    assert await ended(await subscribed(mailer, MAIL, session_id=session.session_id)) is (
        grpc.StatusCode.NOT_FOUND
    )


async def test_a_stream_settles_only_what_is_the_callers(node):
    root, mailer = await node.known("root"), await node.known("mailer")
    await put(root, b"a", tube=MAIL)
    await put(root, b"b", tube="secret")
    (hidden,) = (await take(root, tube="secret")).tasks
    stream = await subscribed(mailer, "*")
    (task,) = await tasks_of(stream)
    assert task.tube == MAIL
    settlement = pb.Settlement(tokens=[hidden.token, task.token], ack=pb.Settlement.Ack())
    await stream.write(pb.SubscribeRequest(settlements=[settlement]))
    while not (message := await stream.read()).settled:
        pass
    (settled,) = message.settled
    assert [(one.item, one.error.reason) for one in settled.errors] == [(0, 20)]
    assert not (await ack(root, [hidden])).errors
    move = pb.Settlement.Release(move_to="secret")
    await stream.write(pb.SubscribeRequest(settlements=[pb.Settlement(tokens=[1], release=move)]))
    assert await ended(stream) is grpc.StatusCode.PERMISSION_DENIED


async def test_a_stream_ends_when_its_credentials_are_withdrawn(node, tmp_path):
    mailer = await node.known("mailer")
    stream = await subscribed(mailer, MAIL)
    assert (await stream.read()).opened.session_id
    write_book(tmp_path / "access.toml", {name: GRANTS[name] for name in ("root", "rival")})
    node.server.reload()
    await stream.write(pb.SubscribeRequest(heartbeat=True))
    assert await ended(stream) is grpc.StatusCode.UNAUTHENTICATED


async def test_rights_that_were_withdrawn_hold_at_once(node, tmp_path):
    root, mailer = await node.known("root"), await node.known("mailer")
    waiting = asyncio.ensure_future(take(mailer, tube="*", wait_ms=1_000))
    await mailer.waiting(1, tube=MAIL)
    write_book(tmp_path / "access.toml", GRANTS | {"mailer": [("consumer", "other")]})
    node.server.reload()
    await put(root, b"x", tube=MAIL)
    assert len((await waiting).tasks) == 0
    assert await refused(take(mailer, tube=MAIL)) == "NOT_ALLOWED"


async def test_a_new_token_is_good_without_a_restart_and_the_old_one_no_more(node, tmp_path):
    path = tmp_path / "access.toml"
    old = await node.known("billing")
    content = path.read_text().replace("principals.billing", "principals.invoicing")
    path.write_text(content)
    node.server.reload()
    await put(old, b"x", tube=MAIL)
    write_book(path, GRANTS | {"billing": []})
    node.server.reload()
    assert await refused(put(old, b"x", tube=MAIL)) == "NOT_ALLOWED"
    write_book(path, {"root": GRANTS["root"]})
    node.server.reload()
    assert await refused(put(old, b"x", tube=MAIL)) == "NO_CREDENTIALS"


# ------------------------------------------------------------------------------ the rest


async def test_the_feed_is_read_by_tubes(node):
    auditor, root = await node.known("auditor"), await node.known("root")

    async def read(caller, *tubes):
        request = feed_service_pb2.ReadChangesRequest(
            tubes=tubes, partition=0, to_seq=1, from_seq=1
        )
        stream = caller.feed.ReadChanges(request, timeout=10)
        return await ended(stream)

    assert await read(auditor, MAIL) is grpc.StatusCode.OK
    assert await read(auditor, MAIL, "secret") is grpc.StatusCode.PERMISSION_DENIED
    assert await read(auditor) is grpc.StatusCode.PERMISSION_DENIED
    assert await read(root) is grpc.StatusCode.OK


async def test_groups_belong_to_those_who_may_put_under_their_names(node):
    billing, mailer = await node.known("billing"), await node.known("mailer")

    def group(name):
        return group_service_pb2.CreateGroupRequest(group=group_service_pb2.Group(name=name))

    await billing.groups.CreateGroup(group("billing.run"))
    assert await refused(billing.groups.CreateGroup(group("other"))) == "NOT_ALLOWED"
    start = group_service_pb2.StartGroupRequest(name="billing.run")
    assert await refused(mailer.groups.StartGroup(start)) == "NOT_ALLOWED"
    await billing.groups.StartGroup(start)


async def test_the_health_is_open_and_the_contract_is_not_told(node):
    channel = await node.channel()
    health = health_pb2_grpc.HealthStub(channel)
    answer = await health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    asked = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(timeout=10)
    await asked.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    assert await ended(asked) is grpc.StatusCode.UNIMPLEMENTED


async def test_a_plain_connection_gets_nowhere(node):
    address = f"127.0.0.1:{node.server.client_port}"
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary("/taskraft.v1.TubeService/ListTubes")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


# ------------------------------------------------------------------------------ certificates


async def test_a_node_whose_certificate_nobody_signed_is_not_believed(node, tmp_path):
    stranger = Authority(tmp_path, "strangers")
    channel = await node.channel(grpc.ssl_channel_credentials(stranger.path.read_bytes()))
    call = channel.unary_unary("/taskraft.v1.TubeService/ListTubes")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_renewed_certificate_is_shown_without_a_restart(node, tmp_path):
    old = node.authority
    before = await node.known("root")
    await put(before, b"x", tube=MAIL)
    node.authority = Authority(tmp_path, "clients")
    node.authority.server()
    node.server.reload()
    channel = await node.channel(grpc.ssl_channel_credentials(old.certificate))
    with pytest.raises(grpc.aio.AioRpcError):
        await channel.unary_unary("/taskraft.v1.TubeService/ListTubes")(b"", timeout=5)
    after = Stubs(node.server, Bearing(await node.channel(), f"Bearer {token_of('root')}"))
    for caller in (before, after):
        await put(caller, b"x", tube=MAIL)


async def test_a_node_with_an_expired_certificate_does_not_start(tmp_path):
    files = Authority(tmp_path, "clients").server(valid=-DAY)
    config = config_in(tmp_path, tls_cert=files.certificate, tls_key=files.key)
    with pytest.raises(TlsUnusable, match=r"server.crt expired at"):
        await Server.open(config)
