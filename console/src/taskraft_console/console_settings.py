"""The settings of one console."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from taskraft_console.signin.signin_settings import SignInSettings
    from taskraft_console.views.redaction import TubeRedaction
    from taskraft_console.views.redaction_rules import RedactionRules

TRACE_ID: Final = "{trace_id}"

Payloads = Literal["hidden", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of one console."""

    target: str
    """Addresses of nodes, "host:port,host:port"."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 7400
    """Port to listen on; 0: any free port."""
    base_path: str = ""
    """Prefix of all paths, such as "/taskraft"; empty: none."""
    name: str = ""
    """Name of the cluster in the top bar; empty: the id of the cluster."""
    read_only: bool = False
    """True: refuse each change."""
    payloads: Payloads = "hidden"
    """Display of payloads, headers and results: at once, or after a click."""
    redaction: RedactionRules | None = None
    """Values of payloads, results and headers that no page shows; None: all are shown."""
    trace_url: str = ""
    """Address of a trace, with "{trace_id}" in the place of its id; empty: no links to traces."""
    timeout_seconds: float = 5.0
    """Maximum time of one call to the cluster, retries included, in seconds."""

    signin: SignInSettings | None = None
    """Settings of the sign-in; None: each visitor uses the credentials of the console."""

    @property
    def public_url(self) -> str:
        """Address of the console as browsers see it, without the base path; empty: not known."""
        return "" if self.signin is None else self.signin.public_url

    def redaction_of(self, tube: str) -> TubeRedaction | None:
        """Return the redaction of the tasks of a tube; None: no rule applies."""
        return None if self.redaction is None else self.redaction.of(tube)

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach the console."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def base_path_of(text: str) -> str:
    """Return a checked base path without a slash at its end.

    Raises:
        ValueError: the text is not a path.
    """
    path = text.rstrip("/")
    if path and (not path.startswith("/") or any(each in path for each in "?#\"'<> ")):
        raise ValueError(f"the base path must look like /taskraft, not {text!r}")
    return path


def trace_url_of(text: str) -> str:
    """Return a checked address of traces.

    Raises:
        ValueError: the text is no web address with the part {trace_id}.
    """
    if text and (
        not text.startswith(("https://", "http://"))
        or text.count(TRACE_ID) != 1
        or not text.isprintable()
        or " " in text
    ):
        raise ValueError(
            f"the address must look like https://traces.example/{TRACE_ID}, not {text!r}"
        )
    return text
