"""Rules for the language of docstrings, comments and pages."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.sources import (
    PACKAGES,
    ROOT,
    docstrings,
    explanations,
    modules,
    place,
    project_files,
)

_SENTENCE_ENDS = re.compile(r"[.!?][\"”)]?\s+(?=[A-Z`])")
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|vs|cf|no|nos|sec)\.\s", re.IGNORECASE)

_BEGIN = r"(?:^|[.:;!?]\s+|\n\s*\n\s*)"
"""The beginning of a sentence, or of a clause after a colon or semicolon."""

_SUPPRESSION = re.compile(r"# (ruff: )?noqa(: [A-Z0-9, ]+)?$")

_BARE_REFERENCE = re.compile(r"See ``?[\w.]+``?[.:;]")

_OLD_WORDS = re.compile(r"\b(anew|hitherto|whence|thereof|ere)\b")

RIDDLES = {
    "a clause as the subject": _BEGIN
    + r"(What|Who|Whoever|Whatever) (?!to\b|happens\b)[^?]*?(\.|:|;|$)",
    "a person for a program": r"\b([Nn]o|[Ss]ome|[Ee]very)body\b|\b[Ww]ho(m|ever)\b|, who\b",
    "a pronoun for a noun": r"\b[Tt]hose (who|that|which|it|of which)\b|\b[Tt]hat which\b",
    "an inversion": r"\b[Ss]o (may|is|are|do(es)?|has|have|can|will) (the|an?|it|they|each|all)\b",
    "what for a noun": r"\bwhat (it|they|comes|goes|came|went|stands|lies|follows)\b",
}
"""Patterns of sentences that readers have to read twice, by the name of the fault."""


def bare_references() -> list[str]:
    """Find docstrings that begin with a reference instead of a sentence."""
    return [
        f"{place(path, line)} {text}"
        for path, tree in modules()
        for _, text, line in docstrings(tree)
        if _BARE_REFERENCE.match(text)
    ]


def long_first_lines() -> list[str]:
    """Find docstrings that do not begin with one sentence on one line."""
    found = []
    for path, tree in modules():
        if ROOT / "tests" in path.parents:
            continue
        for _, text, line in docstrings(tree):
            first, _, rest = text.partition("\n")
            plain = _ABBREVIATIONS.sub("", first)
            ends = first.endswith((".", "?", ":")) and (not rest or rest.startswith("\n"))
            if not ends or _SENTENCE_ENDS.search(plain):
                found.append(f"{place(path, line)} {first}")
    return found


def _comments(text: str, begin: str) -> Iterator[tuple[str, int]]:
    """Yield the blocks of comment lines that begin with a mark, with the line of each."""
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.strip().startswith(begin):
            block.append(line.strip().removeprefix(begin).strip())
        elif block:
            yield "\n".join(block), number - len(block)
            block = []


def _texts() -> Iterator[tuple[Path, str, int]]:
    """Yield docstrings, comments and pages, with file and line."""
    for path, tree in modules():
        if any(folder in path.parents for folder in PACKAGES.values()) or path.is_relative_to(
            ROOT / "tools"
        ):
            for text, line in explanations(tree):
                yield path, text, line
            for text, line in _comments(path.read_text(), "#"):
                yield path, text, line
    for path in project_files():
        if path.suffix == ".proto":
            for text, line in _comments(path.read_text(), "//"):
                yield path, text, line
        # This page quotes bad examples.
        elif path.suffix == ".md" and path.name != "CONTRIBUTING.md":
            yield path, path.read_text(), 1


def riddles() -> list[str]:
    """Find sentences of a form that readers have to read twice."""
    return [
        f"{place(path, line + text[: match.start()].count(chr(10)))} {fault}: "
        + " ".join(text[max(0, match.start() - 20) : match.start() + 70].split())
        for path, text, line in _texts()
        for fault, pattern in RIDDLES.items()
        for match in re.finditer(pattern, text)
    ]


def old_words() -> list[str]:
    """Find words that readers of technical English do not know."""
    return [
        f"{place(path, line + text[: match.start()].count(chr(10)))} {match.group()}"
        for path, text, line in _texts()
        for match in _OLD_WORDS.finditer(text)
    ]


def is_unexplained(line: str) -> bool:
    """Return whether a line of code suppresses a lint rule without a reason."""
    return _SUPPRESSION.search(line) is not None


def unexplained_suppressions() -> list[str]:
    """Find lint rules that are suppressed without a reason after the code of the rule."""
    return [
        place(path, number)
        for path, _ in modules()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if is_unexplained(line)
    ]
