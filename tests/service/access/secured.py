"""Run a node with certificates and access control, and call it with or without credentials."""

from contextlib import AsyncExitStack, asynccontextmanager, suppress

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import (
    group_service_pb2_grpc,
    schedule_service_pb2_grpc,
    session_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.principals import digest_of
from taskraft_service.api.rpc.status import STATUS_KEY
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.process.node_server import NodeServer
from tests.authority import Authority
from tests.service.conftest import Node, config_in, until_phase

MAIL, INVOICES = "billing.mail", "billing.invoices"
GRANTS = {
    "root": [("admin", "*")],
    "billing": [("producer", "billing.*")],
    "biller": [("producer", "billing.*")],
    "mailer": [("consumer", "billing.mail"), ("reader", "billing.mail")],
    "rival": [("consumer", "billing.mail")],
    "auditor": [("reader", "billing.*")],
    "nobody": [],
}
"""Principals of the tests with their grants; the token of each contains its name twice."""


def token_of(principal):
    return f"{principal}-{principal}"


def write_principals(path, grants=GRANTS, speaks_for=("root",), **certificates):
    lines = []
    for name, roles in grants.items():
        lines += [f"[principals.{name}]", f'tokens = ["{digest_of(token_of(name))}"]']
        lines.append(f"certificates = {certificates.get(name, [])}")
        if name in speaks_for:
            lines.append("speaks_for = true")
        for role, pattern in roles:
            lines += [f"[[principals.{name}.grants]]", f'role = "{role}"', f'tubes = ["{pattern}"]']
    path.touch(mode=0o600)
    path.write_text("\n".join(lines))
    return path


class Secured:
    """A node that requires credentials."""

    def __init__(self, server, authority, stack):
        self.server = server
        self.authority = authority
        self._stack = stack
        self._channels = {}

    async def channel(self, credentials=None):
        credentials = credentials or grpc.ssl_channel_credentials(self.authority.path.read_bytes())
        address = f"127.0.0.1:{self.server.client_port}"
        options = (
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.ssl_target_name_override", "localhost"),
        )
        channel = grpc.aio.secure_channel(address, credentials, options=options)
        return await self._stack.enter_async_context(channel)

    async def known(self, principal, token=None, **more):
        """Return stubs that call as a principal, with more metadata."""
        if principal not in self._channels:
            self._channels[principal] = await self.channel()
        bearer = f"Bearer {token or token_of(principal)}"
        return Stubs(self.server, Bearing(self._channels[principal], bearer, more))


class Stubs(Node):
    def __init__(self, server, channel):
        super().__init__(server, channel)
        self.groups = group_service_pb2_grpc.GroupServiceStub(channel)
        self.schedules = schedule_service_pb2_grpc.ScheduleServiceStub(channel)


class Bearing:
    """A channel whose calls carry a token."""

    def __init__(self, channel, authorization, more=None):
        self._channel = channel
        pairs = ((name.replace("_", "-"), value) for name, value in (more or {}).items())
        self._metadata = (("authorization", authorization), *pairs)

    def __getattr__(self, kind):
        make = getattr(self._channel, kind)

        def made(*arguments, **options):
            method = make(*arguments, **options)

            def call(*request, **more):
                return method(*request, metadata=self._metadata, **more)

            return call

        return made


@asynccontextmanager
async def secured(tmp_path, **settings):
    """Run a leading node with a client certificate and the access file of the tests."""
    authority = Authority(tmp_path, "clients")
    files = authority.server()
    if "access_file" not in settings:
        settings["access_file"] = write_principals(tmp_path / "access.toml")
    config = config_in(tmp_path, tls_cert=files.certificate, tls_key=files.key, **settings)
    server = await NodeServer.open(config)
    await server.start()
    try:
        async with AsyncExitStack() as stack:
            await until_phase(server, NodePhase.RUNNING)
            yield Secured(server, authority, stack)
    finally:
        await server.stop()


async def refusal(call):
    """Return the reason and the metadata of a refused call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    packed = dict(caught.value.trailing_metadata())[STATUS_KEY]
    info = error_details_pb2.ErrorInfo()
    status_pb2.Status.FromString(packed).details[0].Unpack(info)
    return info.reason, dict(info.metadata)


async def refused(call):
    return (await refusal(call))[0]


async def session_of(caller):
    request = session_service_pb2.OpenSessionRequest(ttr_ms=60_000)
    return (await caller.sessions.OpenSession(request)).session


async def subscribed(caller, *tubes, **fields):
    stream = caller.tasks.Subscribe(timeout=30)
    sources = [pb.TakeSource(tube=tube) for tube in tubes]
    message = pb.SubscribeRequest(
        open=pb.SubscribeRequest.Open(sources=sources, **fields),
        credit=pb.SubscribeRequest.Credit(tasks=10),
    )
    with suppress(grpc.aio.AioRpcError):  # The refusal arrives with the first read of the stream.
        await stream.write(message)
    return stream


async def tasks_of(stream):
    while True:
        message = await stream.read()
        if message.tasks:
            return message.tasks


async def ended(stream):
    """Return the status code with which a stream ends."""
    try:
        while await stream.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return await stream.code()
