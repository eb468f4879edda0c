"""Read what comes with a call of gRPC: its deadline, and the messages of a stream."""

from __future__ import annotations

import asyncio
from typing import TypeAlias, cast

import grpc.aio

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.limits import MESSAGE_BYTES_MAX

ServicerContext: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]


def deadline_of(context: ServicerContext) -> float | None:
    """Return the call's deadline as a time of the event loop."""
    # The stub says float; a call without a deadline has None.
    left = cast("float | None", context.time_remaining())
    return None if left is None else asyncio.get_running_loop().time() + left


async def read_message(context: ServicerContext) -> bytes | None:
    """Return the next message of a stream; None: the client has closed its side."""
    raw: object = await context.read()
    if not isinstance(raw, bytes):
        return None
    check_size(raw)
    return raw


def check_size(raw: bytes) -> None:
    """Refuse a message above the limit of the contract.

    gRPC's own limit is higher, so that the caller gets our error as long as memory allows it.
    """
    if len(raw) > MESSAGE_BYTES_MAX:
        raise CallRefused(
            error_pb2.Error.PAYLOAD_TOO_LARGE,
            f"the message has {len(raw)} bytes, more than {MESSAGE_BYTES_MAX}",
            {"field": "message", "limit": str(MESSAGE_BYTES_MAX), "actual": str(len(raw))},
        )
