"""Collect everything that is wrong with a request, so that the caller hears it all at once."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence, Sized
from typing import Final

from taskraft.v1 import error_pb2, task_pb2
from taskraft_service.api.rpc.paging import MALFORMED, is_page_token
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.limits import (
    KEY_BYTES_MAX,
    KEY_PARTS_MAX,
    NAME_BYTES_MAX,
    PAGE_SIZE_MAX,
    REQUEST_ID_BYTES_MAX,
)

TUBE_NAME: Final = re.compile(rf"[A-Za-z0-9_.:-]{{1,{NAME_BYTES_MAX}}}")
TUBE_PATTERN: Final = re.compile(rf"[A-Za-z0-9_.:*-]{{1,{NAME_BYTES_MAX}}}")
_OUTSIDE_NAME: Final = re.compile(r"[^A-Za-z0-9_.:-]")
_OUTSIDE_PATTERN: Final = re.compile(r"[^A-Za-z0-9_.:*-]")
SESSION_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
VIOLATIONS_MAX: Final = 100
"""More are counted, not listed."""


class Violations:
    """What is wrong with one request: fields at fault, sizes exceeded.

    ``path`` names a field as in BadRequest: ``tasks[3].delay_ms``.
    """

    def __init__(self) -> None:
        self._fields: list[tuple[str, str]] = []
        self._metadata: dict[str, str] = {}
        self._too_large: list[tuple[str, int, int]] = []

    def add(self, path: str, description: str, metadata: Mapping[str, str] | None = None) -> None:
        """Note a field that is missing, malformed or out of range.

        ``metadata`` is told of the first such field.
        """
        if not self._fields:
            self._metadata = {"field": path, **(metadata or {})}
        if len(self._fields) < VIOLATIONS_MAX:
            self._fields.append((path, description))

    def include(self, path: str, part: Violations) -> None:
        """Note all that is wrong with a part of the request, whose fields stand at ``path``."""
        if not self._fields and part._fields:
            self._metadata = {**part._metadata, "field": path + part._metadata["field"]}
        self._fields += [(path + field, text) for field, text in part._fields]
        self._too_large += [(path + field, most, size) for field, most, size in part._too_large]
        del self._fields[VIOLATIONS_MAX:], self._too_large[VIOLATIONS_MAX:]

    def choice(self, path: str, number: int, known: Container[int]) -> bool:
        """Check that a choice is one that the contract knows; tell whether it is."""
        is_known = number in known
        if not is_known:
            self.add(path, f"{number} is unknown", {"value": str(number)})
        return is_known

    def size(self, path: str, actual: int, limit: int) -> None:
        """Note content above its limit."""
        if actual > limit and len(self._too_large) < VIOLATIONS_MAX:
            self._too_large.append((path, limit, actual))

    def in_range(self, path: str, number: int, low: int, high: int) -> None:
        """Check a number against its bounds, both included."""
        if not low <= number <= high:
            text = f"{number} is not from {low} to {high}"
            self.add(path, text, {"value": str(number), "limit": f"{low}..{high}"})

    def not_negative(self, path: str, number: int) -> None:
        """Check a duration or a count that has no upper bound."""
        if number < 0:
            self.add(path, f"{number} is less than 0", {"value": str(number), "limit": "0.."})

    def at_most(self, path: str, items: Sized, most: int) -> None:
        """Check a list that may be empty."""
        if len(items) > most:
            text = f"{len(items)} items, more than {most}"
            self.add(path, text, {"value": str(len(items)), "limit": f"..{most}"})

    def positive(self, path: str, number: int) -> None:
        """Check an id, a token, or a duration that must not be 0."""
        if number < 1:
            self.add(path, f"{number} is less than 1", {"value": str(number), "limit": "1.."})

    def some(self, path: str, items: Sized, most: int) -> None:
        """Check a list that must hold something."""
        if not 1 <= len(items) <= most:
            text = f"{len(items)} items, not 1 to {most}"
            self.add(path, text, {"value": str(len(items)), "limit": f"1..{most}"})

    def text(self, path: str, text: str, bytes_max: int) -> None:
        """Check the length of a text as it is stored."""
        length = len(text.encode())
        if length > bytes_max:
            text = f"{length} bytes, more than {bytes_max}"
            self.add(path, text, {"value": str(length), "limit": f"..{bytes_max}"})

    def tube(self, path: str, name: str) -> None:
        """Check the name of a tube."""
        if TUBE_NAME.fullmatch(name) is None:
            rule = f'not 1 to {NAME_BYTES_MAX} characters of letters, digits, "_", "-", "." and ":"'
            self._misspelt(path, name, rule, _OUTSIDE_NAME)

    def name(self, path: str, name: str) -> None:
        """Check the name of something that is not a tube."""
        if not name:
            self.add(path, "missing")
        self.text(path, name, NAME_BYTES_MAX)

    def pattern(self, path: str, pattern: str) -> None:
        """Check the name of a tube, or a pattern of names."""
        if TUBE_PATTERN.fullmatch(pattern) is None:
            rule = f'not 1 to {NAME_BYTES_MAX} characters of a name and "*"'
            self._misspelt(path, pattern, rule, _OUTSIDE_PATTERN)

    def _misspelt(self, path: str, text: str, rule: str, outside: re.Pattern[str]) -> None:
        """Note a name that breaks a rule, and where: characters from 0."""
        found = outside.search(text)
        at = found.start() if found is not None else min(len(text), NAME_BYTES_MAX)
        wrong = f"{text[at]!r}" if at < len(text) else "the end"
        self.add(path, f"{rule}: {wrong} at character {at}", {"position": str(at)})

    def session(self, path: str, session_id: str) -> None:
        """Check that a session id has the form of a UUID."""
        if SESSION_ID.fullmatch(session_id) is None:
            self.add(path, "not a UUID")

    def key(self, path: str, parts: Sequence[str]) -> None:
        """Check the parts of a unique key."""
        self.some(path, parts, KEY_PARTS_MAX)
        self.text(path, "".join(parts), KEY_BYTES_MAX)
        if any(not part for part in parts):
            self.add(path, "an empty part")

    def request_id(self, request_id: str) -> None:
        """Check the length of a request_id."""
        self.text("request_id", request_id, REQUEST_ID_BYTES_MAX)

    def page(self, size: int, token: str) -> None:
        """Check which page of a list is wanted; a token may still belong to another list."""
        self.in_range("page_size", size, 0, PAGE_SIZE_MAX)
        if not is_page_token(token):
            self.add("page_token", MALFORMED)

    def consistency(self, consistency: task_pb2.Consistency) -> None:
        """Check that what a read wants can be promised."""
        levels = task_pb2.Consistency.Level.values()
        staleness_ms_max = consistency.staleness_ms_max
        self.choice("consistency.level", consistency.level, levels)
        self.not_negative("consistency.staleness_ms_max", staleness_ms_max)
        if staleness_ms_max > 0 and consistency.level != task_pb2.Consistency.LOCAL:
            self.add("consistency.staleness_ms_max", "goes with the level LOCAL only")

    @property
    def is_any(self) -> bool:
        """Tell whether something is wrong."""
        return bool(self._fields or self._too_large)

    def raise_any(self) -> None:
        """Refuse the call if anything is wrong.

        Raises:
            Refused: INVALID_FIELD with all violations; if something is only too large,
                PAYLOAD_TOO_LARGE.
        """
        sizes = [
            (path, f"{actual} bytes, more than {limit}") for path, limit, actual in self._too_large
        ]
        if self._fields:
            self._fields += sizes
            text = "; ".join(f"{path}: {description}" for path, description in self._fields[:3])
            more = len(self._fields) - 3
            raise CallRefused(
                error_pb2.Error.INVALID_FIELD,
                text + (f"; and {more} more" if more > 0 else ""),
                self._metadata,
                self._fields,
            )
        if self._too_large:
            path, limit, actual = self._too_large[0]
            raise CallRefused(
                error_pb2.Error.PAYLOAD_TOO_LARGE,
                f"{path} has {actual} bytes, more than {limit}",
                {"field": path, "limit": str(limit), "actual": str(actual)},
                sizes,
            )


def check_name(name: str, request_id: str) -> None:
    """Refuse a request of which the name, of a group or a schedule, or the id is malformed."""
    wrong = Violations()
    wrong.request_id(request_id)
    wrong.name("name", name)
    wrong.raise_any()
