"""Collect all violations of a request, so that one error reports all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence, Sized
from typing import Final, Protocol

from google.protobuf.message import Message

from taskraft.v1 import error_pb2, task_pb2
from taskraft_service.api.rpc.paging import TOKEN_MALFORMED, is_page_token
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.limits import (
    CLIENT_ID_BYTES_MAX,
    KEY_BYTES_MAX,
    KEY_PARTS_MAX,
    NAME_BYTES_MAX,
    NAMES_MAX,
    PAGE_SIZE_MAX,
    REQUEST_ID_BYTES_MAX,
    SESSION_LABEL_NAME_BYTES_MAX,
    SESSION_LABELS_BYTES_MAX,
    SESSION_LABELS_MAX,
)
from taskraft_service.queue.entities.refusal import Refusal

TUBE_NAME: Final = re.compile(rf"[A-Za-z0-9_.:-]{{1,{NAME_BYTES_MAX}}}")
TUBE_PATTERN: Final = re.compile(rf"[A-Za-z0-9_.:*-]{{1,{NAME_BYTES_MAX}}}")
_OUTSIDE_NAME: Final = re.compile(r"[^A-Za-z0-9_.:-]")
_OUTSIDE_PATTERN: Final = re.compile(r"[^A-Za-z0-9_.:*-]")
SESSION_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
VIOLATIONS_MAX: Final = 100
"""Maximum number of listed violations; further violations are dropped."""


class PageRequest(Protocol):
    """A request for one page of a list."""

    @property
    def page_size(self) -> int:
        """Maximum number of elements; 0 stands for the default."""

    @property
    def page_token(self) -> str:
        """Token of the page; empty for the first page."""

    @property
    def consistency(self) -> task_pb2.Consistency:
        """Required freshness of the read."""


class Violations:
    """The violations of one request: invalid fields, and content above its size limit.

    ``path`` names a field as in BadRequest: ``tasks[3].delay_ms``.
    """

    __slots__ = ("_fields", "_metadata", "_too_large", "zeros")

    def __init__(self) -> None:
        self._fields: list[tuple[str, str]] = []
        self._metadata: dict[str, str] = {}
        self._too_large: list[tuple[str, int, int]] = []
        self.zeros: list[str] = []
        """Times to live and times to run of 0, until ``allow_zeros`` or the end of the check."""

    def add(self, path: str, description: str, metadata: Mapping[str, str] | None = None) -> None:
        """Add a field that is missing, malformed or out of range.

        Only the metadata of the first violation is kept.
        """
        if not self._fields:
            self._metadata = {"field": path, **(metadata or {})}
        if len(self._fields) < VIOLATIONS_MAX:
            self._fields.append((path, description))

    def add_refused(self, refusal: Refusal | None) -> None:
        """Add the violations that a check of the queue found."""
        for path, description in refusal.violations if refusal is not None else ():
            self.add(path, description)

    def include(self, path: str, part: Violations) -> None:
        """Add the violations of a part of the request whose fields are prefixed with ``path``."""
        part._refuse_zeros()
        if not self._fields and part._fields:
            self._metadata = {**part._metadata, "field": path + part._metadata["field"]}
        self._fields += [(path + field, text) for field, text in part._fields]
        self._too_large += [(path + field, most, size) for field, most, size in part._too_large]
        del self._fields[VIOLATIONS_MAX:], self._too_large[VIOLATIONS_MAX:]

    def check_choice(self, path: str, number: int, known: Container[int]) -> bool:
        """Check the number of an enum value; return whether the contract defines it."""
        is_known = number in known
        if not is_known:
            self.add(path, f"{number} is unknown", {"value": str(number)})
        return is_known

    def check_size(self, path: str, actual: int, limit: int) -> None:
        """Check the size of content, in bytes; see ``raise_if_any`` for the reason of a refusal."""
        if actual > limit and len(self._too_large) < VIOLATIONS_MAX:
            self._too_large.append((path, limit, actual))

    def check_range(self, path: str, number: int, low: int, high: int) -> None:
        """Check a number against its bounds, both included."""
        if not low <= number <= high:
            text = f"{number} is not from {low} to {high}"
            self.add(path, text, {"value": str(number), "limit": f"{low}..{high}"})

    def check_not_negative(self, path: str, number: int) -> None:
        """Check a duration or a count without an upper bound."""
        if number < 0:
            self.add(path, f"{number} is less than 0", {"value": str(number), "limit": "0.."})

    def check_limit(self, path: str, message: Message, field: str) -> None:
        """Check a time to live or a time to run, in ms; an absent field means no limit.

        A limit of 0 would end a task or a lease at once. Answers use 0 for "no limit", so a caller
        that sends 0 probably means that.
        """
        limit_ms = getattr(message, field)
        if limit_ms < 0:
            self.check_not_negative(path, limit_ms)
        elif not limit_ms and message.HasField(field):
            self.zeros.append(path)

    def allow_zeros(self, is_allowed: Callable[[], bool]) -> None:
        """Accept limits of 0 if ``is_allowed`` returns True; call before any other use."""
        if self.zeros and is_allowed():
            self.zeros.clear()

    def _refuse_zeros(self) -> None:
        zeros, self.zeros = self.zeros, []
        for path in zeros:
            text = "a limit of 0 ms ends at once; leave it out for no limit"
            self.add(path, text, {"value": "0", "limit": "1.."})

    def check_positive(self, path: str, number: int) -> None:
        """Check an id, a token, or a duration that must not be 0."""
        if number < 1:
            self.add(path, f"{number} is less than 1", {"value": str(number), "limit": "1.."})

    def check_count(self, path: str, items: Sized, most: int) -> None:
        """Check the number of items in a list that may be empty."""
        if len(items) > most:
            text = f"{len(items)} items, more than {most}"
            self.add(path, text, {"value": str(len(items)), "limit": f"..{most}"})

    def check_nonempty(self, path: str, items: Sized, most: int) -> None:
        """Check the number of items in a list that must not be empty."""
        if not items:
            self.add(path, f"0 items, not 1 to {most}", {"value": "0", "limit": f"1..{most}"})
        elif len(items) > most:
            self.check_count(path, items, most)

    def check_text(self, path: str, text: str, bytes_max: int) -> None:
        """Check the length of a text in UTF-8."""
        length = len(text.encode())
        if length > bytes_max:
            text = f"{length} bytes, more than {bytes_max}"
            self.add(path, text, {"value": str(length), "limit": f"..{bytes_max}"})

    def check_tube(self, path: str, name: str) -> None:
        """Check the name of a tube."""
        if TUBE_NAME.fullmatch(name) is None:
            rule = f'not 1 to {NAME_BYTES_MAX} characters of letters, digits, "_", "-", "." and ":"'
            self._add_misspelt(path, name, rule, _OUTSIDE_NAME)

    def check_name(self, path: str, name: str) -> None:
        """Check the name of a group, a schedule, a driver or a feed consumer."""
        if not name:
            self.add(path, "missing")
        self.check_text(path, name, NAME_BYTES_MAX)

    def check_pattern(self, path: str, pattern: str) -> None:
        """Check a tube name or a pattern of tube names."""
        if TUBE_PATTERN.fullmatch(pattern) is None:
            rule = f'not 1 to {NAME_BYTES_MAX} characters of a tube name and "*"'
            self._add_misspelt(path, pattern, rule, _OUTSIDE_PATTERN)

    def _add_misspelt(self, path: str, text: str, rule: str, outside: re.Pattern[str]) -> None:
        """Add a name that breaks a rule, with the first invalid position, counted from 0."""
        found = outside.search(text)
        at = found.start() if found is not None else min(len(text), NAME_BYTES_MAX)
        invalid = f"{text[at]!r}" if at < len(text) else "the end"
        self.add(path, f"{rule}: {invalid} at character {at}", {"position": str(at)})

    def check_labels(self, path: str, labels: Mapping[str, str]) -> None:
        """Check the number and the sizes of the labels of a session."""
        self.check_count(path, labels, SESSION_LABELS_MAX)
        for name in labels:
            # "!a" escapes control characters, which a terminal would execute.
            self.check_text(f"{path}[{name[:32]!a}]", name, SESSION_LABEL_NAME_BYTES_MAX)
        if "" in labels:
            self.add(path, "a label has an empty name")
        self.check_text(path, "".join([*labels, *labels.values()]), SESSION_LABELS_BYTES_MAX)

    def check_session_id(self, path: str, session_id: str) -> None:
        """Check that a session id has the form of a UUID."""
        if SESSION_ID.fullmatch(session_id) is None:
            self.add(path, "not a UUID")

    def check_unique_key(self, path: str, parts: Sequence[str]) -> None:
        """Check the parts of a unique key."""
        self.check_nonempty(path, parts, KEY_PARTS_MAX)
        self.check_text(path, "".join(parts), KEY_BYTES_MAX)
        if any(not part for part in parts):
            self.add(path, "a part of the key is empty")

    def check_request_id(self, request_id: str, client_id: str) -> None:
        """Check an idempotency key and the client_id that is part of its scope."""
        # Most requests are valid; the conditions save calls on the path of every request.
        if len(request_id) > REQUEST_ID_BYTES_MAX or not request_id.isascii() or "\0" in request_id:
            self.check_key_part("request_id", request_id, REQUEST_ID_BYTES_MAX)
        if client_id:
            self.check_key_part("client_id", client_id, CLIENT_ID_BYTES_MAX)

    def check_key_part(self, path: str, text: str, bytes_max: int) -> None:
        """Check the length of a text that is part of a request's key, and that it has no NUL."""
        self.check_text(path, text, bytes_max)
        if "\0" in text:
            self.add(path, "contains the character NUL", {"position": str(text.index("\0"))})

    def check_page(self, size: int, token: str) -> None:
        """Check the size of a page and the form of its token."""
        self.check_range("page_size", size, 0, PAGE_SIZE_MAX)
        if not is_page_token(token):
            self.add("page_token", TOKEN_MALFORMED)

    def check_consistency(self, consistency: task_pb2.Consistency) -> None:
        """Check the level of a read and its staleness bound."""
        levels = task_pb2.Consistency.Level.values()
        staleness_ms_max = consistency.staleness_ms_max
        self.check_choice("consistency.level", consistency.level, levels)
        self.check_not_negative("consistency.staleness_ms_max", staleness_ms_max)
        if staleness_ms_max > 0 and consistency.level != task_pb2.Consistency.LOCAL:
            self.add("consistency.staleness_ms_max", "allowed only with the level LOCAL")

    @property
    def is_any(self) -> bool:
        """Return whether there is a violation."""
        return bool(self._fields or self._too_large or self.zeros)

    def raise_if_any(self) -> None:
        """Refuse the call if there is a violation.

        Raises:
            CallRefused: INVALID_FIELD with all violations, or PAYLOAD_TOO_LARGE if the only
                violations are content above its size limit.
        """
        if self.zeros:
            self._refuse_zeros()
        if self._fields:
            fields = self._fields + self._sizes()
            text = "; ".join(f"{path}: {description}" for path, description in fields[:3])
            more = len(fields) - 3
            raise CallRefused(
                error_pb2.Error.INVALID_FIELD,
                text + (f"; and {more} more" if more > 0 else ""),
                self._metadata,
                fields,
            )
        if self._too_large:
            path, limit, actual = self._too_large[0]
            raise CallRefused(
                error_pb2.Error.PAYLOAD_TOO_LARGE,
                f"{path} has {actual} bytes, more than {limit}",
                {"field": path, "limit": str(limit), "actual": str(actual)},
                self._sizes(),
            )

    def _sizes(self) -> list[tuple[str, str]]:
        """Return one violation for each field whose content exceeds its size limit."""
        return [
            (path, f"{actual} bytes, more than {limit}") for path, limit, actual in self._too_large
        ]


def check_named_request(name: str, request_id: str, client_id: str) -> None:
    """Check the name and the key of a request about one group or schedule.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_request_id(request_id, client_id)
    violations.check_name("name", name)
    violations.raise_if_any()


def check_page_request(
    request: PageRequest, names_field: str = "", names: Sequence[str] = ()
) -> None:
    """Check a request for a page of a list.

    Args:
        request: the request.
        names_field: the field with tube names or patterns, if the request has one.
        names: the content of that field.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_count(names_field, names, NAMES_MAX)
    for position, name in enumerate(names):
        violations.check_pattern(f"{names_field}[{position}]", name)
    violations.check_page(request.page_size, request.page_token)
    violations.check_consistency(request.consistency)
    violations.raise_if_any()
