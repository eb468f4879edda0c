"""Generate mutants from the code itself: one typical mistake at each place.

The table contains mistakes of people who understand Raft. The generated mutants are mistakes that
anyone can make: a comparison off by one, a reversed condition, a missing statement. Assertions and
constants of a module are left alone, because weakening them changes no correct run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

SUITE_OF: Final = (
    ("replication/taskraft_replication/core/", "core"),
    ("replication/taskraft_replication/storage/", "storage"),
    ("replication/taskraft_replication/peers/", "transport"),
    ("replication/taskraft_replication/tls/", "transport"),
    ("replication/taskraft_replication/node/", "node"),
    ("replication/taskraft_replication/membership/", "membership"),
    ("replication/", "driver"),
    ("service/taskraft_service/queue/", "queue"),
    ("service/taskraft_service/entries/", "entries"),
    ("service/taskraft_service/command_codecs/", "command_codecs"),
    ("service/taskraft_service/leader/", "leader"),
    ("service/taskraft_service/api/", "api"),
    ("service/taskraft_service/storage/", "state"),
    ("service/", "service"),
)
"""Test suite by the prefix of a file's path; the first match applies."""

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, ...]]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
_ARITHMETIC: Final[dict[type[ast.operator], str]] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.FloorDiv: "*",
    ast.Mult: "//",
}
_OPPOSITES: Final = {"min": "max", "max": "min"}


@dataclass(slots=True, frozen=True)
class Edit:
    """A mutant that replaces one range of a file."""

    file: str
    suite: str
    number: int
    """Number of the mutant in its file."""
    line: int
    begin: int
    """Offset of the first replaced byte; ``end`` is the offset after the last one."""
    end: int
    old: str
    new: str

    @property
    def name(self) -> str:
        """The file, the line, and the number of the mutant in the file."""
        return f"{self.file}:{self.line}#{self.number}"

    @property
    def breaks(self) -> str:
        """Old and new text."""
        old, new = (" ".join(text.split())[:80] for text in (self.old, self.new))
        return f"`{old}` became `{new}`"

    def changed(self, text: str) -> str:
        """Return the file's ``text`` with the change."""
        raw = text.encode()
        return (raw[: self.begin] + self.new.encode() + raw[self.end :]).decode()


def generate(root: Path, paths: Iterable[str]) -> list[Edit]:
    """Return all mutants of the files in ``paths``; a folder stands for all its modules."""
    files: list[Path] = []
    for path in paths:
        whole = root / path
        files += sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]
    return [each for file in files for each in _of_file(root, file)]


def _of_file(root: Path, path: Path) -> Iterator[Edit]:
    text = path.read_text()
    name = str(path.relative_to(root))
    suite = next((suite for prefix, suite in SUITE_OF if name.startswith(prefix)), "")
    assert suite, f"no suite is known for {name}"
    source = _Source(text)
    for number, (node, new) in enumerate(_changes(ast.parse(text), source)):
        begin, end = source.extent(node)
        yield Edit(name, suite, number, node.lineno, begin, end, source.of(node), new)


class _Source:
    """The text of a file, with the positions of its parts."""

    def __init__(self, text: str) -> None:
        self._raw = text.encode()
        self._lines = [0]
        for line in self._raw.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def extent(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the offsets of the first byte of ``node`` and of the byte after it."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = self._lines[node.lineno - 1] + node.col_offset
        return begin, self._lines[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of ``node``."""
        begin, end = self.extent(node)
        return self._raw[begin:end].decode()


def _changes(tree: ast.Module, source: _Source) -> Iterator[tuple[_Node, str]]:
    """Yield each node that can be replaced in a module's functions, with the replacement."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in _parts(function.body):
                change = _CHANGES.get(type(node))
                if change is not None:
                    yield from change(node, source)


def _parts(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield ``nodes`` and their descendants, without inner functions (visited separately)."""
    for node in nodes:
        if isinstance(node, _LEFT_ALONE) or _is_guard(node):
            continue
        yield node
        annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
        yield from _parts(each for each in ast.iter_child_nodes(node) if each is not annotation)


def _is_guard(node: ast.AST) -> bool:
    """Return whether a node has an effect only when other code is wrong."""
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    call = node.value if isinstance(node, ast.Expr) else node
    name = call.func if isinstance(call, ast.Call) else None
    return isinstance(name, ast.Name) and name.id == "assert_never"


def _remove_statement(node: ast.stmt, _: _Source) -> Iterator[tuple[_Node, str]]:
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_local = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name | ast.Tuple)
    has_value = isinstance(node, ast.Return) and node.value is not None
    if not (is_docstring or is_local or has_value):
        yield node, "pass"


def _negate_condition(
    node: ast.If | ast.While | ast.IfExp, source: _Source
) -> Iterator[tuple[_Node, str]]:
    yield node.test, f"not ({source.of(node.test)})"


def _change_comparison(node: ast.Compare, source: _Source) -> Iterator[tuple[_Node, str]]:
    if len(node.ops) == 1:
        left, right = source.of(node.left), source.of(node.comparators[0])
        for operator in _COMPARISONS[type(node.ops[0])]:
            yield node, f"({left} {operator} {right})"


def _swap_and_or(node: ast.BoolOp, source: _Source) -> Iterator[tuple[_Node, str]]:
    word = " or " if isinstance(node.op, ast.And) else " and "
    yield node, f"({word.join(f'({source.of(each)})' for each in node.values)})"


def _change_operator(node: ast.BinOp, source: _Source) -> Iterator[tuple[_Node, str]]:
    operator = _ARITHMETIC.get(type(node.op))
    if operator is not None:
        yield node, f"({source.of(node.left)} {operator} {source.of(node.right)})"


def _change_constant(node: ast.Constant, _: _Source) -> Iterator[tuple[_Node, str]]:
    if isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node.value, int):
        yield node, str(node.value + 1)


def _swap_min_max(node: ast.Call, _: _Source) -> Iterator[tuple[_Node, str]]:
    if isinstance(node.func, ast.Name) and node.func.id in _OPPOSITES:
        yield node.func, _OPPOSITES[node.func.id]


_Node: TypeAlias = ast.expr | ast.stmt
_LEFT_ALONE: Final = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Assert,
    ast.Raise,
    ast.JoinedStr,
)
_CHANGES: Final[Mapping[type[ast.AST], Callable[..., Iterator[tuple[_Node, str]]]]] = {
    ast.Expr: _remove_statement,
    ast.Assign: _remove_statement,
    ast.AugAssign: _remove_statement,
    ast.Return: _remove_statement,
    ast.Continue: _remove_statement,
    ast.Break: _remove_statement,
    ast.If: _negate_condition,
    ast.While: _negate_condition,
    ast.IfExp: _negate_condition,
    ast.Compare: _change_comparison,
    ast.BoolOp: _swap_and_or,
    ast.BinOp: _change_operator,
    ast.Constant: _change_constant,
    ast.Call: _swap_min_max,
}
