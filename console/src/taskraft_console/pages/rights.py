"""The settings of the console and of the cluster, and the rights of the visitor."""

from __future__ import annotations

from taskraft_console.pages.page import PageView, PageVisit
from taskraft_console.views.readable import THIN_SPACE, exact_duration


async def rights(visit: PageVisit) -> PageView:
    """Show the name and the permissions of the visitor, and the settings of the console."""
    caller = visit.value(await visit.cluster.caller())
    server = visit.value(await visit.cluster.server())
    settings = visit.settings
    signin = settings.signin
    rules = 0 if settings.redaction is None else len(settings.redaction.redact)
    return PageView(
        template="rights.html",
        title="Settings and rights",
        values={
            "caller": caller,
            "server": server,
            "limits": [
                (name, limit_text(name, value)) for name, value in sorted(server.limits.items())
            ],
            "console": (
                ("Nodes", settings.target.replace(",", ", ")),
                ("Sign-in", "none: loopback only" if signin is None else signin.method),
                ("Public address", settings.public_url),
                ("Base path", settings.base_path),
                ("Changes", "refused: read-only" if settings.read_only else "allowed"),
                ("Payloads", settings.payloads),
                ("Rules of redaction", str(rules)),
                ("Address of traces", settings.trace_url),
                ("Time limit of a call", f"{settings.timeout_seconds:g} s"),
            ),
        },
        refresh_seconds=10.0,
    )


def limit_text(name: str, value: int) -> str:
    """Return the value of a limit; the name of a limit of time ends with ``_ms``."""
    if name.endswith("_ms"):
        return exact_duration(value)
    number = f"{value:,}".replace(",", THIN_SPACE)
    is_size = "bytes" in name.split("_")
    return f"{number}{THIN_SPACE}bytes" if is_size else number
