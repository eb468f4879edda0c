"""The samples behind the charts, as JSON for the page and as CSV for people.

The JSON also has the acts of management in the same span of time, because a change is often the
reason why a curve bends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, PlainTextResponse, Response

from taskraft import TaskraftError
from taskraft_console.pages.page import FormRefused, PageVisit
from taskraft_console.pages.time_window import time_window_of
from taskraft_console.views.readable import iso_time, plain_text

if TYPE_CHECKING:
    from taskraft.v1.cluster_service_pb2 import AuditRecord

FIELDS: Final = (
    "put",
    "take",
    "ack",
    "fail",
    "expired",
    "ready",
    "taken",
    "buried",
    "oldest_ready_age_ms",
    "wait_p50_ms",
    "wait_p95_ms",
    "run_p50_ms",
    "run_p95_ms",
)
COUNTED: Final = frozenset({"put", "take", "ack", "fail", "expired"})
"""Fields that count since the previous sample; charts show their rate per second."""
ACTS_MAX: Final = 50
"""Maximum number of acts of management in a chart; the newest are kept."""


async def history(visit: PageVisit) -> Response:
    """Return the samples of one tube, or of all tubes together, in a span of time."""
    tube = visit.query.get("tube", "")
    try:
        window = await time_window_of(visit)
    except FormRefused as error:
        return PlainTextResponse(f"{error}\n", 400)
    names = (tube,) if tube else ()
    found = visit.value(await visit.cluster.history(names, is_day=window.is_day))
    series = next((each for each in found.histories if each.tube == tube), None)
    places = [place for place, at_ms in enumerate(found.at_ms) if series and window.has(at_ms)]
    columns = {name: [getattr(series, name)[place] for place in places] for name in FIELDS}
    instants = [found.at_ms[place] for place in places]
    if visit.query.get("form") == "csv":
        lines = [",".join(("at", *FIELDS))]
        for place, at_ms in enumerate(instants):
            numbers = (columns[name][place] for name in FIELDS)
            lines.append(",".join((iso_time(at_ms), *("" if n < 0 else str(n) for n in numbers))))
        name = f'attachment; filename="history-{tube or "all"}.csv"'
        text = "\n".join(lines) + "\n"
        return PlainTextResponse(text, headers={"Content-Disposition": name})
    begin_ms = (instants or [found.now_ms])[0] - found.step_ms
    end_ms = window.end_ms or found.now_ms
    acts = await _acts(visit, tube)
    seconds = found.step_ms / 1_000
    return JSONResponse(
        {
            "node": found.node,
            "step_ms": found.step_ms,
            "at": [at_ms / 1_000 for at_ms in instants],
            "series": {
                name: [
                    None if n < 0 else n / seconds if name in COUNTED else n for n in columns[name]
                ]
                for name in FIELDS
            },
            "acts": [
                {"at": act.at_ms / 1_000, "text": _text(act)}
                for act in acts
                if begin_ms <= act.at_ms <= end_ms and not act.refused
            ],
        }
    )


async def _acts(visit: PageVisit, tube: str) -> Sequence[AuditRecord]:
    """Return the newest acts on a tube (empty: on all names) that the visitor may manage.

    If the cluster does not answer, the chart shows its samples without marks.
    """
    try:
        return visit.value(
            await visit.cluster.audit(principal="", call="", name=tube, limit=ACTS_MAX)
        )
    except TaskraftError:
        return ()


def _text(act: AuditRecord) -> str:
    """Return who did what, in one line."""
    names = ", ".join("cluster" if name == "*" else name for name in act.names)
    return plain_text(" ".join(part for part in (act.principal, act.call, names) if part), 120)
