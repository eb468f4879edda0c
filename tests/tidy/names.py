"""Rules for the names of modules and classes."""

import ast
import re
from collections import defaultdict
from itertools import pairwise

from tests.tidy.sources import ROOT, installed_modules, modules, place, public_classes

SHAPELESS_NAMES = frozenset(
    {"utils", "util", "helpers", "helper", "common", "manager", "managers", "base", "misc"}
)
SYNONYMS = frozenset({"job", "jobs", "workerid"})
"""Synonyms of glossary terms: of task and session."""

STEM_CHARACTERS_MIN = 4
"""Words with this many equal first characters count as one word: proposer, proposal."""


MAIN_CLASS_SHARE_MIN = 1 / 4
"""A class with a smaller share of its module's lines need not give the module its name."""

TOPICS = frozenset({"contract", "handshake", "trace"})
"""Modules that hold several classes, and are named after the topic of these classes."""


def _lines_of(node: ast.ClassDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def words_of(name: str) -> list[str]:
    """Split a name in camel or snake case into lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def _is_same_word(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    singular = {longer, longer.removesuffix("s"), longer.removesuffix("es")}
    shared = max(STEM_CHARACTERS_MIN, len(shorter) - 2)
    return shorter in singular or (len(shorter) > 3 and longer[:shared] == shorter[:shared])


def share_a_word(module: str, name: str) -> bool:
    """Return whether the names of a module and of a class have a word in common."""
    if "".join(words_of(module)) in "".join(words_of(name)):
        return True
    return any(_is_same_word(one, other) for one in words_of(module) for other in words_of(name))


def shapeless_modules() -> list[str]:
    """Find modules and folders whose name does not describe their content."""
    return [
        place(path)
        for path, _ in modules()
        if SHAPELESS_NAMES & {path.stem, *path.relative_to(ROOT).parts[:-1]}
    ]


def synonyms() -> list[str]:
    """Find identifiers that use a synonym for task or session."""
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            name = getattr(node, "name", None) or getattr(node, "arg", None) or ""
            name = node.id if isinstance(node, ast.Name) else name
            if not name:
                continue  # most nodes have no name
            words = re.sub(r"([a-z])([A-Z])", r"\1_\2", str(name)).lower().split("_")
            joined = {first + second for first, second in pairwise(words)}
            if SYNONYMS & ({*words} | joined):
                found.append(f"{place(path, getattr(node, 'lineno', 1))} {name}")
    return found


def modules_not_named_after_their_class() -> list[str]:
    """Find modules that share no word with any of their public classes."""
    found = []
    for _, path, tree in installed_modules():
        classes = public_classes(tree)
        if not classes or path.stem in {"__init__", "__main__"} | TOPICS:
            continue
        if "django" in path.parts:  # Django prescribes the names of modules and classes
            continue
        longest = max(classes, key=_lines_of)
        if _lines_of(longest) < MAIN_CLASS_SHARE_MIN * len(path.read_text().splitlines()):
            continue
        names = [node.name for node in classes]
        if path.parent.name != "errors" and not any(share_a_word(path.stem, n) for n in names):
            found.append(f"{place(path, longest.lineno)} {', '.join(names)}")
    return found


def repeated_class_names() -> list[str]:
    """Find public class names that occur twice in one package."""
    places = defaultdict(list)
    for package, path, tree in installed_modules():
        for node in public_classes(tree):
            places[package, node.name].append(place(path, node.lineno))
    return [f"{name} {' '.join(found)}" for (_, name), found in places.items() if len(found) > 1]
