"""GetServerInfo returns each limit with which requests are refused."""

import ast
import importlib
import re
from pathlib import Path

from taskraft_service import limits
from taskraft_service.api.rpc.live_calls import PrincipalShares
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.process import server_limits as module
from taskraft_service.process.server_limits import server_limits
from taskraft_service.queue.limits import Limits
from tests.service.api.rpc.call_loads import call_load

PACKAGE = Path(limits.__file__).parent
API = sorted((PACKAGE / "api").rglob("*.py"))
BETWEEN_NODES = {
    ("taskraft_service.api.rpc.list_maxima", "ENDED_CALLS_MAX"),
    ("taskraft_service.api.rpc.list_maxima", "FORWARDED_CALLS_MAX"),
}
"""Limits on requests that only other nodes send."""
NAMED_LIMITS = (
    re.compile(r'"limit": "(\w+)"'),
    re.compile(r'(?:total_refusal|share_refusal|_overloaded)\([^"()]{0,80}"(\w+_max)"'),
    re.compile(r'_overloaded\("[\w ]+", "(\w+_max)"'),
)
"""Where the code names the limit of a refusal."""


def module_of(path):
    return ".".join(("taskraft_service", *path.relative_to(PACKAGE).with_suffix("").parts))


def imports_of(path, tree):
    """Return the module and the name that each imported name of a file stands for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                found[one.asname or one.name] = (node.module, one.name)
    return found


def maximums_in(path, node, imports):
    """Yield the maximums that an expression names, each with the module that defines it."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            name, (package, last) = each.attr, imports.get(each.value.id, ("", ""))
            defined_in = f"{package}.{last}"
        elif isinstance(each, ast.Name):
            name = each.id
            defined_in, name = imports.get(name, (module_of(path), name))
        else:
            continue
        if name.isupper() and name.endswith("_MAX"):
            yield defined_in, name


def checked_maximums():
    """Return the maximums that are arguments of checks of requests."""
    found = set()
    for path in API:
        tree = ast.parse(path.read_text())
        imports = imports_of(path, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called.startswith("check_") or called == "_one":
                    for argument in node.args:
                        found.update(maximums_in(path, argument, imports))
    return found


def published_maximums():
    path = Path(module.__file__)
    tree = ast.parse(path.read_text())
    named = set(maximums_in(path, tree, imports_of(path, tree)))
    return named | {("taskraft_service.limits", name) for name in vars(limits) if name.isupper()}


def test_maximums_of_checked_requests_are_published():
    checked = checked_maximums()
    assert len(checked) > 40
    for defined_in, name in checked:
        assert isinstance(getattr(importlib.import_module(defined_in), name), int)
    assert checked - published_maximums() == BETWEEN_NODES


def test_limits_that_refusals_name_are_published(tmp_path):
    config = ServerConfig(data_dir=tmp_path)
    load = call_load(bytes_max=64 * 1024 * 1024)
    published = server_limits(config, Limits(), PrincipalShares(1, 2, 3), load.answers)
    code = [path.read_text() for path in PACKAGE.rglob("*.py") if "stubs" not in path.parts]
    named = {name for text in code for each in NAMED_LIMITS for name in each.findall(text)}
    for name in ("calls_max", "sessions_max", "waited_tasks_max", "temporary_bytes_max"):
        assert name in named
    assert sorted(named - published.keys()) == []
    assert published["session_taken_max"] == Limits().session_taken_max
    assert published["waiting_puts_max"] == 10_000
    assert (published["calls_share_max"], published["streams_share_max"]) == (1, 2)
    assert published["answer_bytes_max"] == 16 * 1024 * 1024
    assert published["answer_bytes_share_max"] == 12 * 1024 * 1024
