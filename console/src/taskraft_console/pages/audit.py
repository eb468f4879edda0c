"""The acts of management: who changed what, when, and with what effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft.v1.error_pb2 import Error
from taskraft_console.pages.page import ChangeForms, PageView, PageVisit, shell_word
from taskraft_console.views.act_detail import Fact, detail_facts

if TYPE_CHECKING:
    from taskraft.v1.cluster_service_pb2 import AuditRecord

ACTS_MAX = 200
"""Maximum number of acts on the page."""


async def audit(visit: PageVisit) -> PageView:
    """Show the last acts on names that the visitor may manage, newest first."""
    wanted = {name: visit.query.get(name, "") for name in ("principal", "call", "name")}
    records = visit.value(await visit.cluster.audit(**wanted, limit=ACTS_MAX))
    total = visit.value(await visit.cluster.total())
    given = {name: value for name, value in wanted.items() if value}
    words = "".join(f" --{name} {shell_word(value)}" for name, value in given.items())
    arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return PageView(
        template="audit.html",
        title="Audit",
        values={
            "lines": [
                (each, Error.Reason.Name(each.refused) if each.refused else "", _facts(each))
                for each in records
            ],
            "wanted": wanted,
            "acts_max": ACTS_MAX,
            "now_ms": total.now_ms,
            "search": ChangeForms(f"taskraft cluster audit{words}", f"client.audit({arguments})"),
        },
        refresh_seconds=5.0,
    )


def _facts(record: AuditRecord) -> list[Fact]:
    """Return the facts of an act without the names that another column shows."""
    shown = {Fact("name", name) for name in record.names}
    return [each for each in detail_facts(record.detail) if each not in shown]
