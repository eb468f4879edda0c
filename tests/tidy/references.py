"""Rule for references in docstrings: each name between double backticks exists."""

import ast
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.tidy.sources import (
    PACKAGES,
    ROOT,
    explanations,
    functions,
    installed_modules,
    modules,
    place,
    project_files,
)

_QUOTED = re.compile(r"``([^`]+)``")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_FILE = re.compile(r"[\w/]+\.py")
_THIRD_PARTY = frozenset({"grpc", "pydantic", "structlog"})
_FOREIGN = frozenset(
    {"taskraft.commands", "taskraft.drivers", "pushFilters", "state.after_apply", "node.log"}
)
"""Names that exist outside the code: entry-point groups, options of Spark, failpoints, files."""

_WORD = re.compile(r"[A-Za-z_]\w*")


@cache
def _words_of_code() -> frozenset[str]:
    """Return each word that occurs in code, in the contract or in a script, without docstrings."""
    words: set[str] = set(dir(__import__("builtins")))
    for path in project_files():
        if path.suffix in {".proto", ".toml", ".go", ".yaml", ".pyi"} or path.name == "Makefile":
            words.update(_WORD.findall(path.read_text()))
    for path, tree in modules():
        words.update({path.stem, path.parent.name})
        explained = {line for _, line in explanations(tree)}
        for node in ast.walk(tree):
            for field in ("id", "attr", "arg", "name", "asname", "module", "rest"):
                value = getattr(node, field, None)
                if isinstance(value, str):
                    words.update(value.split("."))
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.lineno not in explained
            ):
                words.update(_WORD.findall(node.value))
    return frozenset(words)


@cache
def _members_of_classes() -> dict[str, set[str]]:
    """Return the names that each class has: methods, fields, and attributes of self."""
    members: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                members[node.name] |= set(_names_in(node))
                bases[node.name] |= {ast.unparse(base).split(".")[-1] for base in node.bases}
    for name in members:
        above = list(bases[name])
        while above:
            base = above.pop()
            members[name] |= members.get(base, set())
            above += [each for each in bases.get(base, ()) if each != base]
    return members


@cache
def _attributes() -> frozenset[str]:
    """Return the lower-case names that some class of the project has."""
    return frozenset().union(*_members_of_classes().values())


def _names_in(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.AnnAssign):
            yield ast.unparse(each.target)
        elif isinstance(each, ast.Assign):
            yield from (ast.unparse(target) for target in each.targets)
    for function in functions(node):
        for each in ast.walk(function):
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                yield each.attr


@cache
def _names_of_modules() -> dict[str, set[str]]:
    """Return the names that each installed module defines at its top level, by full module name."""
    found: dict[str, set[str]] = defaultdict(set)
    for package, path, tree in installed_modules():
        parts = path.relative_to(PACKAGES[package]).with_suffix("").parts
        module = ".".join((package, *parts)).removesuffix(".__init__")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[module].add(node.name)
            elif isinstance(node, ast.AnnAssign):
                found[module].add(ast.unparse(node.target))
            elif isinstance(node, ast.Assign):
                found[module] |= {ast.unparse(target) for target in node.targets}
            elif isinstance(node, ast.ImportFrom | ast.Import):
                found[module] |= {alias.asname or alias.name for alias in node.names}
        while "." in module:
            parent, _, name = module.rpartition(".")
            found[parent].add(name)
            module = parent
    return found


def _is_in_library(name: str) -> bool:
    """Return whether the standard library or an imported package defines a name."""
    first, *rest = name.split(".")
    value: object = importlib.import_module(first)
    for index, part in enumerate(rest, start=1):
        if hasattr(value, part):
            value = getattr(value, part)
            continue
        try:
            value = importlib.import_module(".".join((first, *rest[:index])))
        except ImportError:
            return False
    return True


def _is_below_a_module(name: str) -> bool:
    """Return whether a module whose full name ends with the first part defines the rest."""
    head, _, tail = name.rpartition(".")
    for module, names in _names_of_modules().items():
        if module == name or module.endswith("." + name):
            return True
        if head and (module == head or module.endswith("." + head)) and tail in names:
            return True
    holder = head.rpartition(".")[2]
    return (
        "." in head and tail in _members_of_classes().get(holder, ()) and _is_below_a_module(head)
    )


def resolves(name: str) -> bool:
    """Return whether a name between double backticks exists in the project or in a library."""
    if _FILE.fullmatch(name):
        return any(str(path).endswith("/" + name) for path in project_files())
    if name in _FOREIGN or not _NAME.fullmatch(name):
        return True  # The text is an expression, an example or a pattern, and no name.
    first, *rest = name.split(".")
    if not rest:
        return name in _words_of_code()
    members = _members_of_classes()
    if len(rest) == 1 and first in members:
        return rest[0] in members[first]
    if len(rest) == 1 and rest[0].islower() and rest[0] in _attributes():
        return first in _words_of_code()
    if _is_below_a_module(name):
        return True
    if first in sys.stdlib_module_names or first in _THIRD_PARTY:
        return _is_in_library(name)
    stems = {module.rpartition(".")[2] for module in _names_of_modules()}
    return first not in stems | set(PACKAGES) and {first, *rest} <= _words_of_code()


def dangling_references() -> list[str]:
    """Find names between double backticks that nothing in the project has."""
    return [
        f"{place(path, line + text[: match.start()].count(chr(10)))} {match.group(1)}"
        for path, tree in modules()
        if ROOT / "tests" not in path.parents
        for text, line in explanations(tree)
        for match in _QUOTED.finditer(text)
        if not resolves(match.group(1).removesuffix("()"))
    ]
