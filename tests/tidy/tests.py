"""Rules for tests: no sleep, an assertion in each test, and folders that mirror the code."""

import ast

from tests.tidy.sources import ROOT, functions, modules, place

SINGLE_THREADED = {
    "tests/gate/node_forker.py",
    "tests/mutants/screen.py",
    "tests/mutants/worker.py",
    "tests/service/crash_child.py",
}
"""Programs that fork before they start a thread."""
WAITS = "tests/turns.py"
"""Module with the waits for a condition, which pause between two looks at the condition."""


def sleeping_tests() -> list[str]:
    """Find sleeps in tests; ``sleep(0)`` only lets the loop turn and is allowed."""
    found = []
    for path, tree in modules():
        of_root = path.relative_to(ROOT)
        if of_root.parts[0] != "tests" or str(of_root) == WAITS:
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
    """Return whether a node of a test can fail the test."""
    return isinstance(node, ast.Assert) or (
        isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises"
    )


def assertionless_tests() -> list[str]:
    """Find tests without an assertion."""
    return [
        f"{place(path, function.lineno)} {function.name}"
        for path, tree in modules()
        if path.name.startswith("test_") and ROOT / "tests" in path.parents
        for function in functions(tree)
        if function.name.startswith("test_")
        and not any(asserts(node) for node in ast.walk(function))
    ]


def misplaced_tests() -> list[str]:
    """Find tests of the server whose folder has no counterpart among the packages."""
    tests = ROOT / "tests"
    return [
        place(path)
        for path, _ in modules()
        if path.name.startswith("test_") and tests in path.parents
        for top, *rest in [path.relative_to(tests).parts[:-1] or ("",)]
        if top in {"replication", "service"}
        and not (ROOT / top / f"taskraft_{top}").joinpath(*rest).is_dir()
    ]


def forks_beside_threads() -> list[str]:
    """Find forks of processes with threads: the child can wait for a lock of a missing thread.

    ``subprocess`` is safe without ``preexec_fn``, and ``multiprocessing`` with the context "spawn".
    """
    found = []
    for path, tree in modules():
        if str(path.relative_to(ROOT)) in SINGLE_THREADED:
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            keywords = {keyword.arg for keyword in node.keywords}
            contexts = {ast.unparse(argument) for argument in node.args}
            if (
                called
                in {"os.fork", "os.forkpty", "multiprocessing.Process", "multiprocessing.Pool"}
                or "preexec_fn" in keywords
                or (called == "multiprocessing.get_context" and contexts != {"'spawn'"})
                or (
                    called == "ProcessPoolExecutor"
                    and len(node.args) + ("mp_context" in keywords) < 2
                )
            ):
                found.append(place(path, node.lineno))
    return found
