"""Enforce the house rules that no linter knows: sizes, names, imports, sleeps, addresses.

Every rule is one function that returns where it is broken, so that a failure lists all places.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
FOLDERS_OF_CODE = (
    "service",
    "replication",
    "clients",
    "pipeline",
    "bench",
    "demo",
    "tools",
    "tests",
)

SHAPELESS_NAMES = frozenset(
    {"utils", "util", "helpers", "helper", "common", "manager", "managers", "base", "misc"}
)
SYNONYMS = frozenset({"job", "jobs", "workerid"})
"""Words for which the glossary has another: task, session."""

REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("gcr", "io"),
        ("pkg", "dev"),
        ("maven", "org"),
        ("debian", "org"),
        ("ubuntu", "com"),
    )
)
"""Where packages come from is the business of whoever installs them."""

STUB_PACKAGES = ("taskraft.v1",)


@cache
def project_files() -> tuple[Path, ...]:
    """Return what is committed or about to be: all that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return tuple(path for path in paths if path.is_file())


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    """Return our own Python modules, parsed; generated ones are not ours."""
    own = [
        path
        for path in project_files()
        if path.suffix == ".py"
        and path.relative_to(ROOT).parts[0] in FOLDERS_OF_CODE
        and "_pb2" not in path.name
    ]
    return tuple((path, ast.parse(path.read_text(), str(path))) for path in own)


def place(path: Path, line: int = 1) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count a function's lines without its docstring: explaining must not cost."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        first = function.body[0]
        assert first.end_lineno is not None
        lines -= first.end_lineno - first.lineno + 1
    return lines


def imported_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the full name of everything a module imports, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def long_modules() -> list[str]:
    counts = ((path, len(path.read_text().splitlines())) for path, _ in modules())
    return [f"{place(path)} {lines} lines" for path, lines in counts if lines > MODULE_LINES_MAX]


def long_functions() -> list[str]:
    return [
        f"{place(path, function.lineno)} {function.name}: {lines_of_code(function)} lines"
        for path, tree in modules()
        for function in functions(tree)
        if lines_of_code(function) > FUNCTION_LINES_MAX
    ]


def undocumented_modules() -> list[str]:
    return [place(path) for path, tree in modules() if tree.body and not ast.get_docstring(tree)]


def shapeless_modules() -> list[str]:
    return [
        place(path)
        for path, _ in modules()
        if SHAPELESS_NAMES & {path.stem, *path.relative_to(ROOT).parts[:-1]}
    ]


def synonyms() -> list[str]:
    """Find identifiers that call a task or a session something else."""
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            name = getattr(node, "name", None) or getattr(node, "arg", None) or ""
            name = node.id if isinstance(node, ast.Name) else name
            words = re.sub(r"([a-z])([A-Z])", r"\1_\2", str(name)).lower().split("_")
            joined = {first + second for first, second in pairwise(words)}
            if SYNONYMS & ({*words} | joined):
                found.append(f"{place(path, getattr(node, 'lineno', 1))} {name}")
    return found


def sleeping_tests() -> list[str]:
    """Find sleeps in tests; ``sleep(0)`` only lets the loop turn and is allowed."""
    found = []
    for path, tree in modules():
        if path.relative_to(ROOT).parts[0] != "tests":
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            turns = [isinstance(arg, ast.Constant) and arg.value == 0 for arg in node.args]
            if called == "sleep" and turns != [True]:
                found.append(place(path, node.lineno))
    return found


def asserts(node: ast.AST) -> bool:
    """Tell whether a test fails here if something is not as it should be."""
    return isinstance(node, ast.Assert) or (
        isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises"
    )


def assertionless_tests() -> list[str]:
    """Find tests that leave it to others to fail, or to nobody."""
    return [
        f"{place(path, function.lineno)} {function.name}"
        for path, tree in modules()
        if path.name.startswith("test_") and ROOT / "tests" in path.parents
        for function in functions(tree)
        if function.name.startswith("test_")
        and not any(asserts(node) for node in ast.walk(function))
    ]


def misplaced_tests() -> list[str]:
    """Find tests of the server in folders that are no packages of it."""
    tests = ROOT / "tests"
    return [
        place(path)
        for path, _ in modules()
        if path.name.startswith("test_") and tests in path.parents
        for top, *rest in [path.relative_to(tests).parts[:-1] or ("",)]
        if top in {"replication", "service"}
        and not (ROOT / top / f"taskraft_{top}").joinpath(*rest).is_dir()
    ]


def imports_beyond_the_stubs() -> list[str]:
    """Find imports of the client by the server, which may know the generated stubs only."""
    return [
        f"{place(path, line)} {name}"
        for path, tree in modules()
        if path.relative_to(ROOT).parts[0] in {"service", "replication"}
        for name, line in imported_names(tree)
        if name.split(".")[0] == "taskraft" and not name.startswith(STUB_PACKAGES)
    ]


def rocksdb_outside_storage() -> list[str]:
    storage = ROOT / "service" / "taskraft_service" / "storage"
    return [
        f"{place(path, line)} {name}"
        for path, tree in modules()
        if path.relative_to(ROOT).parts[0] in {"service", "replication"}
        and storage not in path.parents
        for name, line in imported_names(tree)
        if name.split(".")[0] == "rocksdict"
    ]


def addresses_of_registries() -> list[str]:
    """Find names of package registries, and lock files of npm that say where they downloaded."""
    found = []
    for path in project_files():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        forbidden = REGISTRIES
        if path.name == "package-lock.json":
            forbidden += ('"resolved":',)
        found += [
            place(path, number)
            for number, line in enumerate(lines, start=1)
            if any(name in line for name in forbidden)
        ]
    return found


@pytest.mark.parametrize(
    "rule",
    [
        long_modules,
        long_functions,
        undocumented_modules,
        shapeless_modules,
        synonyms,
        sleeping_tests,
        assertionless_tests,
        misplaced_tests,
        imports_beyond_the_stubs,
        rocksdb_outside_storage,
        addresses_of_registries,
    ],
)
def test_nothing_breaks_the_house_rule(rule):
    assert rule() == []


def test_a_function_is_measured_without_its_docstring():
    tree = ast.parse('def put():\n    """Put.\n\n    At length.\n    """\n    return 1\n')
    assert [lines_of_code(function) for function in functions(tree)] == [2]


def test_an_assertion_is_found_wherever_it_stands_in_a_test():
    parts = ("assert a", "with pytest.raises(E):\n  f()", "for a in b:\n  assert a", "check(a)")
    found = [any(asserts(node) for node in ast.walk(ast.parse(part))) for part in parts]
    assert found == [True, True, True, False]


def test_imports_are_found_by_their_full_names():
    tree = ast.parse("import taskraft.client\nfrom taskraft import errors\nfrom . import task\n")
    assert [name for name, _ in imported_names(tree)] == ["taskraft.client", "taskraft.errors"]
