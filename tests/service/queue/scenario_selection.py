"""Operations on selected tasks in scenario files.

    bury mail ids=1,2            by ids; also keys=a/b,c (parts of a key between slashes),
    delete mail limit=2 after=7 where state = BURIED AND attempt > 3        or, last, a filter
    kick mail count=2            the first ones; kick, snatch and restart may have a delay
    switch mail ids=1 to=zombie for=50
    cancel mail ids=1
    move mail ids=1 to=news delay=5 front renew    without ``to``: dead letters return
    update mail ids=1 new=body new_pri=3 new_delay=10 new_ttl=20 new_ttr=5

A put may have ``key=a/b conflict=return_existing among=ready,delayed within=10``.

The query ``failed mail ids=1`` shows the records of failed tasks that are gone. The query ``list
mail size=2 scan=9 desc where ...`` (or ``taking``) shows the ids of all pages.
"""

from __future__ import annotations

from taskraft_service.languages.filter_text import read_filter
from taskraft_service.queue.entities.new_task import AMONG_UNFINISHED, OnConflict, UniqueAmong
from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.cancel import Cancel, CancelResult
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.selection import ByFilter, ByIds, ByKeys
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.reading.task_listing import Listing, Passed, Window
from tests.service.queue.scenario_policies import update

WORDS = ("kick", "bury", "delete", "snatch", "restart", "switch", "cancel", "update", "move")
QUESTIONS = ("list", "failed")
FLAGS = ("desc", "fatal", "taking", "renew")


def cut(line):
    """Return a line without its filter, and the filter or None."""
    line, where, text = line.partition(" where ")
    return line, text if where else None


def selector(found, where):
    if where is not None:
        limit, after = int(found.get("limit", 1_000)), int(found.get("after", 0))
        return ByFilter(read_filter(where), limit, after)
    if "keys" in found:
        return ByKeys([tuple(key.split("/")) for key in found["keys"].split(",")])
    if "ids" in found:
        return ByIds([int(part) for part in found["ids"].split(",")])
    return None


def key(found):
    """Return the unique key of a new task, and its conflict policy, as keywords."""
    if "key" not in found:
        return {}
    conflict = OnConflict[found.get("conflict", "fail").upper()]
    states = tuple(State[name.upper()] for name in found.get("among", "").split(",") if name)
    among = UniqueAmong(
        states or AMONG_UNFINISHED.states, int(found.get("within", AMONG_UNFINISHED.ms))
    )
    key = tuple(found["key"].split("/"))
    return {"unique_key": key, "on_conflict": conflict, "unique_among": among}


def command(word, tube, found, where):
    """Parse a command."""
    chosen = selector(found, where)
    delay_ms = int(found.get("delay", 0))
    match word:
        case "kick":
            count = int(found.get("count", 1))
            return Kick(tube, count, chosen, delay_ms, update=update(found))
        case "bury":
            reason = found.get("because")
            return Bury(tube, chosen, Failure(reason, "", "fatal" in found) if reason else None)
        case "delete":
            return Delete(tube, chosen)
        case "snatch":
            return Snatch(tube, chosen, delay_ms)
        case "restart":
            return Restart(tube, chosen, delay_ms)
        case "switch":
            return Switch(tube, chosen, State[found["to"].upper()], int(found.get("for", 0)))
        case "cancel":
            return Cancel(tube, chosen)
        case "move":
            return move(tube, found, chosen)
        case "update":
            return UpdateTasks(tube, chosen, update(found))
        case _:
            raise AssertionError(word)


def move(tube, found, chosen):
    """Parse a move."""
    position = next((place for place in Position if place.name.lower() in found), Position(0))
    delay_ms = int(found["delay"]) if "delay" in found else None
    return Move(
        tube,
        chosen,
        found.get("to", ""),
        delay_ms,
        position,
        "renew" in found,
        update=update(found),
    )


def failed(queue, tube, found):
    """Answer with the records of selected failed tasks that were removed."""
    return [
        "nothing"
        if view is None
        else f"{view.tube}/{view.id} {'/'.join(view.extras.unique_key)} {view.extras.outcome.name}"
        f" attempt {view.attempt} because {view.extras.failure.type}"
        for view in queue.failed_tasks(tube, selector(found, None))
    ]


def ask(queue, tube, found, where):
    """Answer with the ids of the tasks of each page, and the end of the last call."""
    listing = Listing(
        read_filter(where or ""),
        queue.now_ms,
        "desc" in found,
        tasks_max=int(found.get("size", 100)),
        bytes_max=1 << 20,
        scan_max=int(found.get("scan", 100)),
    )
    last_id = queue.last_id(tube)
    window, pages = Passed((), last_id) if "taking" in found else Window(0, last_id), []
    while not window.is_empty:
        listed = queue.scan_tasks(tube, listing, window)
        assert listed.rest != window
        window = listed.rest
        pages.append(" ".join(str(task.id) for task in listed.tasks) or "none")
    return pages or ["empty"]


def answer_to(result):
    """Return the answer to a command; None if another module shows it."""
    rest = getattr(result, "continue_after_id", 0)
    more = f", continue after {rest}" if rest else ""
    match result:
        case CountResult(count):
            return f"count {count}{more}"
        case CancelResult(asked, removed):
            return f"asked {asked}, removed {removed}{more}"
        case _:
            return None
