"""gRPC's interop client for Go passes its test cases against both servers of the client port."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from taskraft_service.api.rpc.rpc_server import ServerLimits
from tests.foreign.conftest import HERE, build_go, require
from tests.service.api.rpc.interop_service import interop_table
from tests.service.api.rpc.servers import SERVERS, server_class

pytestmark = [pytest.mark.foreign, pytest.mark.real_time]

CASES = (
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
    "gzip_unary",
    "gzip_client_streaming",
)


@pytest.fixture(scope="module")
def interop(tmp_path_factory):
    require("go")
    return build_go(HERE / "interop", ".", tmp_path_factory.mktemp("go") / "interop")[0]


@asynccontextmanager
async def serving(edge):
    server = server_class(edge)(interop_table(), ServerLimits(100, 100))
    port = server.listen("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("edge", SERVERS)
async def test_the_interop_client_for_go_passes(interop, edge, case):
    async with serving(edge) as port:
        running = await asyncio.create_subprocess_exec(
            *(interop, f"127.0.0.1:{port}", case),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await running.communicate()
    assert running.returncode == 0, said.decode()
    assert said.decode().split()[-2:] == ["passed", case]
