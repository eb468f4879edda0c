"""The page of one task: its state, the causes of a delay, its history, and the possible changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft import errors
from taskraft.cli.delivery import Cause, Delivery
from taskraft_console.console_settings import TRACE_ID
from taskraft_console.data.tube_reads import OneTube
from taskraft_console.pages.page import PageView, PageVisit, shell_word
from taskraft_console.pages.task_changes import TASK_CHANGES
from taskraft_console.views.payload_view import PayloadView
from taskraft_console.views.readable import plain_text
from taskraft_console.views.task_graph import draw_graph, graph_task
from taskraft_console.views.timeline import timeline_of

if TYPE_CHECKING:
    from taskraft import Group, Task
    from taskraft_console.views.redaction import TubeRedaction

HEADER_CHARACTERS_MAX = 300
_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class HeaderLine:
    """One header of a task."""

    name: str
    text: str


async def task(visit: PageVisit) -> PageView:
    """Show one task."""
    tube, task_id = visit.path["tube"], task_id_of(visit.path["task_id"])
    is_revealed = visit.settings.payloads == "full" or visit.query.get("reveal") == "1"
    reads = visit.cluster
    found, counted, events = await asyncio.gather(
        reads.task(tube, task_id, payload=is_revealed),
        reads.tube(tube),
        reads.events(tube, task_id),
    )
    one, shown, trail = visit.value(found), visit.value(counted), visit.value(events)
    spec = one.message.spec
    redaction = visit.settings.redaction_of(tube)
    form = visit.query.get("form", "")
    payload = PayloadView.of(spec.payload, form, redaction) if is_revealed else None
    result = PayloadView.of(one.result, "", redaction) if is_revealed and one.result else None
    trace_id = trace_id_of(spec.headers.get("traceparent", b""))
    return PageView(
        template="task.html",
        title=f"{tube}/{task_id}",
        values={
            "task": one,
            "spec": spec,
            "tube": tube,
            "now_ms": shown.now_ms,
            "key": "/".join(spec.unique_key),
            "steps": list(timeline_of(trail.events)),
            "is_complete": trail.complete,
            "causes": await _causes(visit, one, shown),
            **await _graph(visit, one),
            "payload": payload,
            "result": result,
            "headers": _headers(spec.headers, redaction),
            "is_downloadable": redaction is None or not redaction.hides_values,
            "trace_id": trace_id,
            "trace_url": visit.settings.trace_url.replace(TRACE_ID, trace_id),
            "is_revealed": is_revealed,
            "changes": [each for each in TASK_CHANGES if one.state in each.states],
            "command": f"taskraft task show {shell_word(tube)} {task_id}",
            "python": f"client.tube({tube!r}).peek({task_id})",
        },
        refresh_seconds=2.0,
    )


def _headers(headers: Mapping[str, bytes], redaction: TubeRedaction | None) -> Sequence[HeaderLine]:
    """Return the headers of a task, without the redacted values."""
    return [
        HeaderLine(
            name,
            "left out by a rule"
            if redaction is not None and redaction.hides_header(name)
            else plain_text(value.decode(errors="replace"), HEADER_CHARACTERS_MAX),
        )
        for name, value in sorted(headers.items())
    ]


def trace_id_of(traceparent: bytes) -> str:
    """Return the trace id of a W3C trace context; empty: no trace id."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found[1].decode() if found and found[1].strip(b"0") else ""


def task_id_of(text: str) -> int:
    """Return the task id in an address.

    Raises:
        TaskNotFound: the text is no id of a task.
    """
    if text.isdecimal() and len(text) < 20 and 0 < int(text) < 2**63:
        return int(text)
    raise errors.TaskNotFound(f"{text!r} is not the id of a task")


async def _graph(visit: PageVisit, task: Task) -> dict[str, object]:
    """Return the drawn graph of the tasks around a task; None: no task waits for another."""
    found = visit.value(await visit.cluster.task_graph(task.tube, task.id))
    graph = draw_graph(map(graph_task, found.tasks)) if found.edges else None
    return {"graph": graph, "is_whole_graph": not found.truncated}


async def _causes(visit: PageVisit, task: Task, shown: OneTube) -> list[Cause]:
    """Return why the task is not being delivered, the decisive cause first."""
    tube = shown.tube
    return Delivery(
        task=task,
        tube=tube.info,
        counts=tube.counts,
        now_ms=shown.now_ms,
        group=await _group(visit, task),
    ).causes()


async def _group(visit: PageVisit, task: Task) -> Group | None:
    name = task.message.spec.group
    if not name or task.state != "HELD":
        return None
    groups = visit.value(await visit.cluster.groups())
    return next((each for each in groups if each.name == name), None)
