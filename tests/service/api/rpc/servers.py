"""The implementations of ``RpcServer``, for tests that run over each of them."""

from importlib.util import find_spec

import pytest

from taskraft_service.api.rpc.grpc_server import GrpcServer

SERVERS = [
    "grpc",
    pytest.param(
        "native",
        marks=[
            pytest.mark.edge,
            pytest.mark.skipif(
                find_spec("taskraft_edge") is None, reason="`make native` builds the native edge"
            ),
        ],
    ),
]
"""Values of the setting ``edge``."""


def server_class(edge):
    """Return the implementation of a value of the setting."""
    if edge == "grpc":
        return GrpcServer
    from taskraft_service.api.rpc.native_server import NativeServer  # noqa: PLC0415 - optional

    return NativeServer
