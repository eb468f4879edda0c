"""The search for tasks: one tube, the filter of the command line, one address for each search."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import Final

from taskraft import TaskraftError, errors
from taskraft_console.pages.bulk import ACTIONS, RATE_DEFAULT, start_forms
from taskraft_console.pages.page import ChangeForms, PageView, PageVisit, integer_of

PAGE_SIZES: Final = (50, 100, 250)
ORDERS: Final = ("id", "id desc", "taking")
STATES: Final = ("READY", "DELAYED", "TAKEN", "BURIED", "HELD", "DONE", "ZOMBIE")
SUGGESTED_MAX: Final = 12
"""Maximum number of tubes to choose from, those with most tasks first."""
EMPTY_PAGES_MAX: Final = 5
"""Maximum number of pages without a match that one visit looks through."""


@dataclass(frozen=True, slots=True)
class FilterMistake:
    """A mistake in a filter."""

    text: str
    position: int | None
    """Position of the mistake in the filter, from 0; None: not known."""


async def tasks(visit: PageVisit) -> PageView:
    """Show the tasks of a tube that match a filter."""
    query = visit.query
    tube, where = query.get("tube", ""), query.get("where", "")
    order = query.get("order", "") if query.get("order", "") in ORDERS else ""
    size = integer_of(query.get("size", ""), PAGE_SIZES[0], 1, PAGE_SIZES[-1])
    tubes = visit.value(await visit.cluster.tubes()).tubes
    values: dict[str, object] = {
        "tube": tube,
        "where": where,
        "order": order,
        "size": size,
        "names": [each.info.name for each in tubes],
        "largest": nlargest(SUGGESTED_MAX, tubes, key=lambda each: each.counts.tasks.total),
        "orders": ORDERS,
        "states": STATES,
        "sizes": PAGE_SIZES,
        "page": None,
        "mistake": None,
        "search": ChangeForms.search(tube, where, order),
        "after": query.get("after", ""),
        "actions": tuple(ACTIONS),
        "rate": RATE_DEFAULT,
        "sweep_forms": start_forms(tube, where),
    }
    status = 200
    if tube:
        try:
            token, looked = query.get("after", ""), 1
            page = visit.value(
                await visit.cluster.tasks(tube, where, order=order, size=size, token=token)
            )
            while not page.tasks and page.next_token and looked < EMPTY_PAGES_MAX:
                looked += 1
                page = visit.value(
                    await visit.cluster.tasks(
                        tube, where, order=order, size=size, token=page.next_token
                    )
                )
            values["page"] = page
        except errors.InvalidField as error:
            values["mistake"], status = mistake_of(error), 400
    return PageView(
        template="tasks.html",
        title=f"Tasks of {tube}" if tube else "Tasks",
        values=values,
        status=status,
        refresh_seconds=3.0,
    )


def mistake_of(error: TaskraftError) -> FilterMistake:
    """Return a mistake with its position in the filter, if the server sent it."""
    position = error.metadata.get("position", "")
    return FilterMistake(error.message, int(position) if position.isdecimal() else None)
