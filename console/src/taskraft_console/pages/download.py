"""Send the payload of a task as a file."""

from __future__ import annotations

from starlette.responses import Response

from taskraft import errors
from taskraft_console.pages.page import PageVisit
from taskraft_console.pages.task import task_id_of


async def download(visit: PageVisit) -> Response:
    """Return all bytes of a payload; the browser stores them and never shows them.

    Raises:
        NotAllowed: payloads are hidden, and the address does not ask to reveal them; or a rule
            leaves out values of the tube.
        TaskNotFound: the task does not exist.
    """
    if visit.settings.payloads != "full" and visit.query.get("reveal") != "1":
        raise errors.NotAllowed("payloads are hidden; reveal the payload on the page of the task")
    redaction = visit.settings.redaction_of(visit.path["tube"])
    if redaction is not None and redaction.hides_values:
        raise errors.NotAllowed("a rule of the console leaves out values of this tube")
    tube, task_id = visit.path["tube"], task_id_of(visit.path["task_id"])
    found = visit.value(await visit.cluster.task(tube, task_id, payload=True))
    return Response(
        found.payload,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="task-{task_id}.bin"'},
    )
