"""A page, and one visit of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urlencode

from taskraft_console.console_settings import ConsoleSettings
from taskraft_console.data.cluster_reads import ClusterReads
from taskraft_console.data.shared_reads import Reading

if TYPE_CHECKING:
    from taskraft import AsyncClient
    from taskraft_console.pages.outage import Outage
    from taskraft_console.signin.visitor import Visitor

Value = TypeVar("Value")

RELOAD_SECONDS: Final = 10
"""Interval in which a browser without scripts reloads a page without fields, in seconds."""

_WORD: Final = re.compile(r"[A-Za-z0-9_./:,=@%+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """Everything that a template shows."""

    template: str
    title: str
    values: Mapping[str, object]
    status: int = 200
    """HTTP status of the answer."""
    refresh_seconds: float = 2.0
    """Interval of live updates."""
    reload_seconds: int | None = None
    """Interval in which a browser without scripts reloads the page; None: never, because a reload
    would remove what people enter, or close what they opened."""


@dataclass(slots=True, kw_only=True)
class PageVisit:
    """One visit of a page: the address, and the answers of the cluster so far."""

    settings: ConsoleSettings
    visitor: Visitor
    cluster: ClusterReads
    path: Mapping[str, str]
    """Parts of the path, such as the name of the tube."""
    query: Mapping[str, str]
    notice: str = ""
    """Result of a change; empty: the visit follows no change."""
    failure: str = ""
    """Reason why a change was refused; empty: no change was refused."""
    failure_advice: str = ""
    problem: str = ""
    """Reason why an answer is old; empty: all answers are fresh."""
    age_seconds: float = 0.0
    """Age of the oldest answer."""
    outage: Outage | None = None
    """The nodes that answer; None: the cluster answers."""
    form: Mapping[str, str] = field(default_factory=dict)
    """Values that the user entered, to show them again after a refusal."""

    def value(self, reading: Reading[Value]) -> Value:
        """Return the value of an answer, and note its age and its problem."""
        self.problem = self.problem or reading.problem
        self.age_seconds = max(self.age_seconds, reading.age_seconds)
        return reading.value

    def url(self, *parts: str, **query: object) -> str:
        """Return the address of a page; empty values of the query are left out."""
        return url_of(self.settings.base_path, *parts, **query)


PageHandler = Callable[[PageVisit], Awaitable[PageView]]


@dataclass(frozen=True, slots=True)
class ChangeForms:
    """The forms of a change on the command line and in Python, for scripts."""

    command: str
    """Command line of the change; empty: the command line does not have this change."""
    python: str

    @classmethod
    def search(cls, tube: str, where: str, order: str = "") -> ChangeForms:
        """Return a list of tasks as a command and as Python."""
        command = f"taskraft task list {shell_word(tube)}"
        call = f"client.tube({tube!r}).list("
        if where:
            command += f" --where {shell_word(where)}"
            call += repr(where)
        if order:
            command += f" --order-by {shell_word(order)}"
            call += f"{', ' if where else ''}order_by={order!r}"
        return cls(command, call + ")")


class FormRefused(ValueError):
    """A form lacks a value, or has a value that cannot be used."""


SweepStart = Callable[
    ["AsyncClient", PageVisit, Mapping[str, str], str, Mapping[str, str]], Awaitable[str]
]
"""Starts or stops sweeps: client, visit, parts of the path, name of the change, form values.
Returns the number of the sweep; empty: several sweeps."""

Change = Callable[["AsyncClient", Mapping[str, str], str, Mapping[str, str]], Awaitable[str]]
"""Makes a change: client, parts of the path, name of the change, values of the form. Returns a
sentence about the change.
"""


def url_of(base_path: str, *parts: str, **query: object) -> str:
    """Return an address below the base path; `parts` are quoted one by one."""
    path = "/".join(quote(part, safe="") for part in parts)
    given = {name: str(value) for name, value in query.items() if value not in ("", None)}
    return f"{base_path}/{path}" + (f"?{urlencode(given, quote_via=quote)}" if given else "")


def shell_word(text: str) -> str:
    """Return a word of a shell command, in single quotes if necessary."""
    if _WORD.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def integer_of(text: str, default: int, low: int, high: int) -> int:
    """Return the integer in a text, limited to a range; the default for another text."""
    try:
        return min(max(int(text), low), high)
    except ValueError:
        return default
