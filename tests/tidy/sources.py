"""Read and parse the files of the repository, once for all rules."""

import ast
import gc
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

FOLDERS_OF_CODE = (
    "service",
    "replication",
    "clients",
    "pipeline",
    "console",
    "bench",
    "demo",
    "examples",
    "tools",
    "tests",
)

PACKAGES = {
    "taskraft_service": ROOT / "service" / "taskraft_service",
    "taskraft_replication": ROOT / "replication" / "taskraft_replication",
    "taskraft": ROOT / "clients" / "python" / "src" / "taskraft",
    "taskraft_pipeline": ROOT / "pipeline" / "src" / "taskraft_pipeline",
    "taskraft_console": ROOT / "console" / "src" / "taskraft_console",
}
"""Import packages that users install, with their folders."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def project_files() -> tuple[Path, ...]:
    """Return the files that git tracks or would track: all files that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return tuple(path for path in paths if path.is_file())


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    """Return the project's Python modules, parsed, without generated stubs."""
    own = [
        path
        for path in project_files()
        if path.suffix == ".py"
        and path.relative_to(ROOT).parts[0] in FOLDERS_OF_CODE
        and "_pb2" not in path.name
    ]
    # The trees are millions of objects that live until the process ends. The collector would scan
    # these objects again and again, while they are made and in all later tests.
    gc.disable()
    try:
        parsed = tuple((path, ast.parse(path.read_text(), str(path))) for path in own)
        gc.freeze()
    finally:
        gc.enable()
    return parsed


@cache
def installed_modules() -> tuple[tuple[str, Path, ast.Module], ...]:
    """Return the modules of the packages that users install, each with its package's name."""
    return tuple(
        (package, path, tree)
        for path, tree in modules()
        for package, folder in PACKAGES.items()
        if folder in path.parents
    )


def place(path: Path, line: int = 1) -> str:
    """Return a file and a line as editors read them."""
    return f"{path.relative_to(ROOT)}:{line}"


def functions(tree: ast.AST) -> Iterator[Function]:
    """Yield all functions and methods of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imported_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the full name of everything that a module imports, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def public_classes(tree: ast.Module) -> list[ast.ClassDef]:
    """Return the public classes of a module, in order; nested classes do not count."""
    return [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def docstrings(tree: ast.Module) -> Iterator[tuple[Documented, str, int]]:
    """Yield each docstring of a module, its classes and functions, with its first line's number."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)) is not None:
            yield node, text, node.body[0].lineno


def explanations(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each docstring and each string below an attribute, with its first line's number."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value.value, node.lineno
