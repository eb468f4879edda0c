"""Parse the output of a directive into records, to compare facts instead of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

Record: TypeAlias = tuple[object, ...]
"""The kind of the record, then its fields; messages and snapshots are nested records."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\[|\]|[^\s\[\]"]+')
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_LOG_LINE: Final = re.compile(r"(DEBUG|INFO|WARN|ERROR) ")
_CONFIGURATION: Final = (
    r"voters=\((?P<voters>[\d ]*)\)(?:&&\((?P<outgoing>[\d ]*)\))?"
    r"(?: learners=\((?P<learners>[\d ]*)\))?(?: learners_next=\((?P<next>[\d ]*)\))?"
    r"(?P<auto> autoleave)?"
)
_FACTS: Final = [
    ("role", re.compile(r"INFO (\d+) became ([a-z-]+) at term (\d+)")),
    ("configuration", re.compile(rf"INFO (\d+) switched to configuration {_CONFIGURATION}")),
    (
        "restored",
        re.compile(
            r"INFO (\d+) \[.*lastindex: (\d+), lastterm: (\d+)\] restored snapshot "
            r"\[index: (\d+), term: (\d+)\]"
        ),
    ),
]
_ERRORS: Final = {
    "raft proposal dropped": "proposal_dropped",
    "raft: cannot step as peer not found": "unknown_peer",
    "v1 conf change can only have one operation and no transition": "v1_form",
    "requested index is unavailable due to compaction": "compacted",
}
_LINES: Final = [
    ("header", re.compile(r"> (\d+) (handling Ready|receiving messages)")),
    ("header", re.compile(r"> (\d+) (processing append thread|processing apply thread)")),
    ("section", re.compile(r"(Entries|CommittedEntries|Messages|Processing|Responses):")),
    ("ready", re.compile(r"Ready MustSync=(true|false):|<empty Ready>")),
    ("soft_state", re.compile(r"Lead:(\d+) State:(State\w+)")),
    ("hard_state", re.compile(r"HardState Term:(\d+)(?: Vote:(\d+))? Commit:(\d+)")),
    ("read_state", re.compile(r"ReadState (\d+) (.*)")),
    ("member", re.compile(r"(\d+): (State\w+) \((Voter|Non-Voter)\) Term:(\d+) Lead:(\d+)")),
    (
        "progress",
        re.compile(
            r"(\d+): (State\w+) match=(\d+) next=(\d+)( learner)?( paused)?"
            r"(?: pendingSnap=(\d+))?( inactive)?(?: inflight=(\d+)(\[full\])?)?"
        ),
    ),
    ("empty_log", re.compile(r"log is empty: first index=(\d+), last index=(\d+)")),
    ("ok", re.compile(r"ok(?: \(quiet\))?")),
    ("idle", re.compile(r"no (messages|append work to perform|apply work to perform)")),
]


class UnreadableOutput(Exception):
    """A line does not have the form of any known record."""


def read_records(output: str) -> list[Record]:
    """Return the records of ``output``, without log lines that contain no fact.

    Raises:
        UnreadableOutput: a line has an unknown form.
    """
    records = [_record(line) for line in _logical_lines(output)]
    return [each for each in records if each is not None]


def read_configuration(text: str) -> Record:
    """Return the record of a configuration in the notation of log lines."""
    found = re.fullmatch(_CONFIGURATION, text)
    if found is None:
        raise UnreadableOutput(text)
    return _configuration(found)


def is_log_line(line: str) -> bool:
    """Return whether ``line`` was logged; only the facts of such lines are compared."""
    return _LOG_LINE.match(line.strip()) is not None


def _logical_lines(output: str) -> Iterator[str]:
    """Join lines that belong together: bracketed lists, and a message with its snapshot."""
    pending = ""
    for line in output.splitlines():
        text = line.strip()
        if pending and not _is_open(pending) and not text.startswith("Snapshot: "):
            yield pending
            pending = ""
        pending = f"{pending} {text}".strip()
    if pending:
        yield pending


def _is_open(text: str) -> bool:
    bare = "" if _LOG_LINE.match(text) else _QUOTED.sub("", text)
    return bare.count("[") > bare.count("]")


def _record(line: str) -> Record | None:
    if line in _ERRORS:
        return ("error", _ERRORS[line])
    if _LOG_LINE.match(line):
        return _fact(line)
    for kind, pattern in _LINES:
        if found := pattern.fullmatch(line):
            return (kind, *found.groups(), "empty" if "<empty" in line else "")
    tokens = _Tokens(line)
    try:
        return _parsed(tokens)
    except (IndexError, AssertionError) as error:
        raise UnreadableOutput(line) from error


def _fact(line: str) -> Record | None:
    for kind, pattern in _FACTS:
        if found := pattern.fullmatch(line):
            if kind == "configuration":
                return (kind, found[1], _configuration(found))
            return (kind, *found.groups())
    return None


def _configuration(found: re.Match[str]) -> Record:
    groups = (found["voters"], found["outgoing"], found["learners"], found["next"])
    return (
        *(tuple(sorted(map(int, (each or "").split()))) for each in groups),
        bool(found["auto"]),
    )


class _Tokens:
    """The words of a line, read from left to right."""

    def __init__(self, line: str) -> None:
        self._words: list[str] = _TOKEN.findall(line)

    def __bool__(self) -> bool:
        return bool(self._words)

    def peek(self) -> str:
        return self._words[0] if self._words else ""

    def next(self) -> str:
        return self._words.pop(0)

    def expect(self, word: str) -> None:
        assert self.next() == word

    def after(self, prefix: str) -> str:
        """Return the rest of the next word, after its ``prefix``."""
        word = self.next()
        assert word.startswith(prefix)
        return word[len(prefix) :]

    def bracketed(self, element: Callable[[_Tokens], Record | str]) -> tuple[object, ...]:
        self.expect("[")
        elements = []
        while self.peek() != "]":
            elements.append(element(self))
        self.expect("]")
        return tuple(elements)


def _parsed(tokens: _Tokens) -> Record:
    dropped = tokens.peek() == "dropped:"
    if dropped:
        tokens.next()
    if "->" in tokens.peek():
        record = ("dropped" if dropped else "sent", _message(tokens))
    elif tokens.peek() == "Snapshot":
        tokens.next()
        record = ("snapshot", _snapshot(tokens))
    else:
        record = ("entry", _entry(tokens))
    assert not tokens
    return record


def _message(tokens: _Tokens) -> Record:
    fields: dict[str, object] = {"between": tokens.next(), "kind": tokens.next()}
    assert str(fields["kind"]).startswith("Msg")
    while tokens.peek() not in ("", "]") and "->" not in tokens.peek():
        name, _, value = tokens.next().partition(":")
        if name == "Rejected":
            tokens.expect("(Hint:")
            fields[name] = tokens.after("").rstrip(")")
        elif name == "Entries":
            fields[name] = tokens.bracketed(_entry)
        elif name == "Responses":
            fields[name] = tokens.bracketed(_message)
        elif name == "Snapshot":
            fields[name] = _snapshot(tokens)
        else:
            assert name in ("Term", "Log", "Commit", "Vote")
            assert value
            fields[name] = value
    return tuple(sorted(fields.items()))


def _entry(tokens: _Tokens) -> Record:
    place, kind = tokens.next(), tokens.next()
    assert re.fullmatch(r"\d+/\d+", place)
    assert kind in ("EntryNormal", "EntryConfChange", "EntryConfChangeV2")
    if kind == "EntryNormal":
        payload = tokens.next()
        assert payload.startswith('"')
        return (place, kind, payload)
    changes = []
    while re.fullmatch(r"[vlru]\d+", tokens.peek()):
        changes.append(tokens.next())
    return (place, kind, *changes)


def _snapshot(tokens: _Tokens) -> Record:
    index, term = tokens.after("Index:"), tokens.after("Term:")
    halves = []
    for name in ("ConfState:Voters:", "VotersOutgoing:", "Learners:", "LearnersNext:"):
        tokens.expect(name)
        halves.append(tuple(sorted(map(str, tokens.bracketed(_Tokens.next)))))
    return (index, term, *halves, tokens.after("AutoLeave:"))
