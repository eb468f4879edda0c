"""The calls in memory have the interface of grpc.aio, as far as the client uses it."""

import ast
import inspect
from pathlib import Path

import grpc.aio
import pytest
from grpc.aio import _base_channel

import taskraft
from taskraft_service.memory_node.direct_calls import DirectCall, DirectChannel

CALLS = (grpc.aio.UnaryUnaryCall, grpc.aio.UnaryStreamCall, grpc.aio.StreamStreamCall)
FAULTS = {"cut", "restore", "die", "end_calls", "fail"}
"""Methods by which the kit breaks connections."""
AMBIGUOUS = {"add_done_callback", "cancelled", "code", "details", "done", "time_remaining"}
"""Methods that futures or errors have too; the type checker finds their use on calls."""


def methods(kind):
    """Return the public methods of a class, with their signatures."""
    return {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def kinds_of(signature):
    """Return the parameters of a method by name."""
    return {
        name: parameter.kind
        for name, parameter in signature.parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


@pytest.mark.parametrize(
    ("ours", "theirs"), [(DirectChannel, (grpc.aio.Channel,)), (DirectCall, CALLS)]
)
def test_each_method_is_one_of_grpc_with_its_parameters(ours, theirs):
    known = {}
    for kind in theirs:
        known |= methods(kind)
    for name, signature in methods(ours).items():
        if name not in FAULTS:
            assert kinds_of(signature).items() <= kinds_of(known[name]).items(), name


@pytest.mark.parametrize(
    ("start", "theirs"),
    [
        ("unary_unary", _base_channel.UnaryUnaryMultiCallable),
        ("unary_stream", _base_channel.UnaryStreamMultiCallable),
        ("stream_stream", _base_channel.StreamStreamMultiCallable),
    ],
)
def test_a_call_is_started_as_by_grpc(start, theirs):
    channel = DirectChannel({"/m": None})
    ours = inspect.signature(getattr(channel, start)("/m", bytes, bytes)).parameters
    known = inspect.signature(theirs.__call__).parameters
    assert {*ours} <= {*known}
    assert {"timeout", "metadata"} <= {*ours}
    assert [name for name in known if known[name].default is inspect.Parameter.empty][1:] == [
        name for name in ours if ours[name].default is inspect.Parameter.empty
    ]


def test_the_client_uses_only_what_the_calls_in_memory_have():
    theirs = {name for kind in (grpc.aio.Channel, *CALLS) for name in methods(kind)}
    ours = {*methods(DirectChannel), *methods(DirectCall)}
    package = Path(taskraft.__file__).parent
    used = {
        node.attr
        for path in package.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert {"read", "write", "initial_metadata", "get_state"} <= used & theirs
    assert used & theirs - AMBIGUOUS <= ours
