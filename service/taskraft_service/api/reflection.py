"""Serve gRPC reflection, with which tools call a node without the proto files."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any, cast

from google.protobuf.message import Message
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection, reflection_pb2

from taskraft_service.api.rpc.library_services import bidirectional
from taskraft_service.api.rpc.method_table import MethodTable


def reflection_table(services: Iterable[str]) -> MethodTable:
    """Return the methods of the reflection service by path.

    Args:
        services: full names of the services that a node serves, without health and reflection.
    """
    names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
    serve = reflection.aio.ReflectionServicer(names).ServerReflectionInfo
    return {
        f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": bidirectional(
            reflection_pb2.ServerReflectionRequest,
            # The method is an asynchronous generator; its stub declares a coroutine.
            cast("Callable[[Any, Any], AsyncIterable[Message]]", serve),
        )
    }
