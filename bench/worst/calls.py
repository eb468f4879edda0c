"""Make the calls of the contract by the descriptors of their methods."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Final

import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

import taskraft.v1
from taskraft_service.stubs.externalscaler import external_scaler_pb2

CALL_SECONDS: Final = 60.0


def methods_of_the_contract() -> Sequence[MethodDescriptor]:
    """Return all methods that a client can call."""
    methods = [*external_scaler_pb2.DESCRIPTOR.services_by_name["ExternalScaler"].methods]
    for module in pkgutil.iter_modules(taskraft.v1.__path__):
        if module.name.endswith("_service_pb2"):
            contract = importlib.import_module(f"taskraft.v1.{module.name}").DESCRIPTOR
            for service in contract.services_by_name.values():
                methods += service.methods
    return methods


async def call(channel: grpc.aio.Channel, method: MethodDescriptor, request: Message) -> None:
    """Call a method, and receive its answer, or the first message of a stream."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    both: grpc.aio.StreamStreamMultiCallable[Message, bytes]
    answers: grpc.aio.UnaryStreamMultiCallable[Message, bytes]
    answer: grpc.aio.UnaryUnaryMultiCallable[Message, bytes]
    if method.client_streaming:
        both = channel.stream_stream(path, encoded, as_it_is)
        stream = both(timeout=CALL_SECONDS)
        await stream.write(request)
        await stream.read()
        stream.cancel()
    elif method.server_streaming:
        answers = channel.unary_stream(path, encoded, as_it_is)
        messages = answers(request, timeout=CALL_SECONDS)
        await messages.read()
        messages.cancel()
    else:
        answer = channel.unary_unary(path, encoded, as_it_is)
        await answer(request, timeout=CALL_SECONDS)


def encoded(message: Message) -> bytes:
    """Return an encoded message."""
    return message.SerializeToString()


def as_it_is(raw: bytes) -> bytes:
    """Return an encoded message."""
    return raw
