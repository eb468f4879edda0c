"""Rules for the sizes of modules and functions, and for docstrings of modules."""

import ast

from tests.tidy.sources import Function, functions, modules, place

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70


def lines_of_code(function: Function) -> int:
    """Return a function's lines without its docstring, so that a long docstring costs nothing."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        first = function.body[0]
        assert first.end_lineno is not None
        lines -= first.end_lineno - first.lineno + 1
    return lines


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
