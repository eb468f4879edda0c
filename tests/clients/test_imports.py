"""Modules that an import loads, and public names."""

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import taskraft

pytestmark = pytest.mark.real_time


def loaded_by(code):
    """Return the modules that a new process has loaded after some code."""
    command = [sys.executable, "-c", f"{code}; import sys; print('\\n'.join(sys.modules))"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_everything_named_is_importable_and_nothing_else_is_public():
    for name in taskraft.__all__:
        assert getattr(taskraft, name) is not None
    assert dir(taskraft) == sorted(taskraft.__all__)
    assert taskraft.__all__ == sorted(taskraft.__all__, key=lambda name: (name.islower(), name))


def test_the_type_checker_sees_the_same_names():
    tree = ast.parse(Path(taskraft.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in block.body for alias in node.names}
    assert seen | {"__version__", "errors"} == set(taskraft.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Clyent"):
        _ = taskraft.Clyent


def test_the_stubs_do_not_load_the_client():
    loaded = loaded_by("from taskraft.v1 import task_pb2")
    assert not {name for name in loaded if name.startswith("taskraft._")}
    assert "grpc" not in loaded


def test_the_list_of_commands_loads_neither_grpc_nor_protobuf_nor_rich():
    loaded = loaded_by("from taskraft.cli import main; main(['--help'], standalone_mode=False)")
    assert not loaded & {"grpc", "google.protobuf", "rich", "asyncio", "opentelemetry.trace"}


def test_the_client_does_not_load_opentelemetry():
    loaded = loaded_by("from taskraft import Client; Client('127.0.0.1:1')")
    assert not {name for name in loaded if name.startswith("opentelemetry")}


def test_the_version_is_that_of_the_distribution():
    assert taskraft.__version__ == version("taskraft")
