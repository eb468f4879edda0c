"""The changes of one task, each with its form on the command line and in Python."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft import errors
from taskraft_console.pages.page import ChangeForms, FormRefused, shell_word

if TYPE_CHECKING:
    from taskraft import AsyncClient, AsyncTube


@dataclass(frozen=True, slots=True)
class ChangeField:
    """A value that the user enters."""

    name: str
    label: str
    hint: str


Run = Callable[["AsyncClient", "AsyncTube", int, Mapping[str, str]], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """A change of one task."""

    name: str
    label: str
    states: frozenset[str]
    """States of a task in which the change is possible."""
    explanation: str
    command: str
    """Command line, with TUBE, ID and the names of fields in capital letters; empty: none."""
    python: str
    run: Run
    fields: tuple[ChangeField, ...] = ()
    is_dangerous: bool = False

    def forms(self, tube: str, task_id: int, given: Mapping[str, str]) -> ChangeForms:
        """Return the change as a command and as Python."""
        command = self.command.replace("TUBE", shell_word(tube)).replace("ID", str(task_id))
        python = self.python.replace("TUBE", repr(tube)).replace("ID", str(task_id))
        for field in self.fields:
            value = given.get(field.name, "") or field.hint
            command = command.replace(field.name.upper(), shell_word(value))
            python = python.replace(field.name.upper(), _python_value(value))
        return ChangeForms(command, python)


def _python_value(text: str) -> str:
    return text if text.lstrip("-").isdecimal() else repr(text)


async def _kick(_: AsyncClient, tube: AsyncTube, task_id: int, __: Mapping[str, str]) -> str:
    await tube.kick(ids=task_id)
    return "kicked: the task is ready, and its attempts begin again"


async def _restart(_: AsyncClient, tube: AsyncTube, task_id: int, __: Mapping[str, str]) -> str:
    await tube.restart(task_id)
    return "restarted: the task is ready, and its attempts begin again"


async def _bury(_: AsyncClient, tube: AsyncTube, task_id: int, form: Mapping[str, str]) -> str:
    await tube.bury(task_id, reason=form.get("reason", ""))
    return "buried"


async def _snatch(_: AsyncClient, tube: AsyncTube, task_id: int, __: Mapping[str, str]) -> str:
    await tube.snatch(task_id)
    return "released: the lease of the holder is stale"


async def _cancel(_: AsyncClient, tube: AsyncTube, task_id: int, __: Mapping[str, str]) -> str:
    done = await tube.cancel(task_id)
    return "the holder was asked to stop" if done.asked else "cancelled: the task was removed"


async def _delete(_: AsyncClient, tube: AsyncTube, task_id: int, __: Mapping[str, str]) -> str:
    await tube.delete(task_id)
    return "deleted"


async def _move(_: AsyncClient, tube: AsyncTube, task_id: int, form: Mapping[str, str]) -> str:
    target = form.get("target", "").strip()
    if not target:
        raise FormRefused("Name the tube to which the task moves.")
    await tube.move(task_id, to=target)
    return f"moved to {target}"


async def _priority(_: AsyncClient, tube: AsyncTube, task_id: int, form: Mapping[str, str]) -> str:
    text = form.get("priority", "").strip()
    try:
        priority = int(text)
    except ValueError:
        raise FormRefused(f"The priority must be an integer, not {text!r}.") from None
    await tube.update(task_id, priority=priority)
    return f"priority is now {priority}"


async def _delay(_: AsyncClient, tube: AsyncTube, task_id: int, form: Mapping[str, str]) -> str:
    delay = form.get("delay", "").strip()
    if not delay:
        raise FormRefused("Enter the delay, for example 10m.")
    await tube.update(task_id, delay=delay)
    return f"delayed by {delay}"


async def _copy(_: AsyncClient, tube: AsyncTube, task_id: int, __: Mapping[str, str]) -> str:
    """Put a copy: the content and the options of the task, without key, group and dependencies."""
    found = await tube.peek(task_id)
    spec = found.message.spec
    options: dict[str, object] = {"headers": dict(spec.headers)}
    for name in ("priority", "ttl_ms", "ttr_ms"):
        if spec.HasField(name):
            value = getattr(spec, name)
            options[name.removesuffix("_ms")] = value / 1_000 if name.endswith("_ms") else value
    for name in ("type", "subqueue", "content_type"):
        if getattr(spec, name):
            options[name] = getattr(spec, name)
    try:
        new_id = await tube.put(spec.payload, **options)  # type: ignore[arg-type]  # types of the contract
    except errors.InvalidField as error:
        raise FormRefused(f"The tube refuses the copy: {error}") from error
    return f"copied as task {new_id}"


_UNTAKEN: Final = frozenset({"READY", "DELAYED", "BURIED", "HELD"})
_ANY: Final = frozenset({"READY", "DELAYED", "TAKEN", "BURIED", "HELD", "DONE", "ZOMBIE"})

TASK_CHANGES: Final = (
    TaskChange(
        name="kick",
        label="Kick",
        states=frozenset({"BURIED"}),
        explanation="The task becomes ready, and its attempts begin again.",
        command="taskraft kick TUBE --id ID",
        python="client.tube(TUBE).kick(ids=ID)",
        run=_kick,
    ),
    TaskChange(
        name="restart",
        label="Run now",
        states=frozenset({"DELAYED", "DONE", "ZOMBIE"}),
        explanation="The task becomes ready at once, and its attempts begin again.",
        command="taskraft task restart TUBE ID",
        python="client.tube(TUBE).restart(ID)",
        run=_restart,
    ),
    TaskChange(
        name="cancel",
        label="Ask to stop",
        states=frozenset({"TAKEN"}),
        explanation="The holder is asked to stop; the holder decides.",
        command="taskraft task cancel TUBE ID",
        python="client.tube(TUBE).cancel(ID)",
        run=_cancel,
    ),
    TaskChange(
        name="release",
        label="Release from holder",
        states=frozenset({"TAKEN"}),
        explanation="The lease becomes stale, and the task is ready. The attempt counts.",
        command="taskraft task snatch TUBE ID",
        python="client.tube(TUBE).snatch(ID)",
        run=_snatch,
        is_dangerous=True,
    ),
    TaskChange(
        name="bury",
        label="Bury",
        states=frozenset({"READY", "DELAYED"}),
        explanation="The task is set aside until it is kicked.",
        command="taskraft task bury TUBE ID --reason REASON",
        python="client.tube(TUBE).bury(ID, reason=REASON)",
        run=_bury,
        fields=(ChangeField("reason", "Reason", "looked at by hand"),),
    ),
    TaskChange(
        name="priority",
        label="Priority",
        states=_UNTAKEN,
        explanation="The priority changes; a lower number is more urgent.",
        command="taskraft task update TUBE ID --priority PRIORITY",
        python="client.tube(TUBE).update(ID, priority=PRIORITY)",
        run=_priority,
        fields=(ChangeField("priority", "New priority", "0"),),
    ),
    TaskChange(
        name="delay",
        label="Delay",
        states=frozenset({"READY", "DELAYED"}),
        explanation="The task becomes ready after the delay, counted from now.",
        command="taskraft task update TUBE ID --delay DELAY",
        python="client.tube(TUBE).update(ID, delay=DELAY)",
        run=_delay,
        fields=(ChangeField("delay", "New delay", "10m"),),
    ),
    TaskChange(
        name="move",
        label="Move",
        states=frozenset({"READY", "DELAYED", "BURIED"}),
        explanation="The task moves to another tube and gets a new id there.",
        command="taskraft task move TUBE ID --to TARGET",
        python="client.tube(TUBE).move(ID, to=TARGET)",
        run=_move,
        fields=(ChangeField("target", "Other tube", "parked"),),
    ),
    TaskChange(
        name="copy",
        label="Put a copy",
        states=_ANY,
        explanation="A new task with the same content is put. The copy has no unique key, no group "
        "and no dependencies.",
        command="taskraft peek TUBE ID --raw | taskraft put TUBE -",
        python="client.tube(TUBE).put(client.tube(TUBE).peek(ID).payload)",
        run=_copy,
    ),
    TaskChange(
        name="delete",
        label="Delete",
        states=_ANY,
        explanation="The task is removed for good. A holder that settles later gets LEASE_STALE.",
        command="taskraft delete TUBE ID",
        python="client.tube(TUBE).delete(ID)",
        run=_delete,
        is_dangerous=True,
    ),
)


async def change_task(
    client: AsyncClient, path: Mapping[str, str], action: str, form: Mapping[str, str]
) -> str:
    """Make a change of one task; return a sentence about the change.

    Raises:
        FormRefused: the form is incomplete.
        TaskraftError: the cluster refused the change.
    """
    change = next((each for each in TASK_CHANGES if each.name == action), None)
    if change is None:
        raise FormRefused(f"there is no change {action!r} of a task")
    return await change.run(client, client.tube(path["tube"]), int(path["task_id"]), form)
