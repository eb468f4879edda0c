"""Import exported tasks: check all of them, put them in parts, and bury the BURIED tasks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import click

from taskraft import Batch, errors
from taskraft._planned_task import PlannedTask
from taskraft.cli.failures import tell
from taskraft.cli.put_lines import count_told, parts
from taskraft.cli.task_restoration import UNFINISHED, TaskRestoration
from taskraft.v1 import task_pb2

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from taskraft import Client, Tube, TubeInfo
    from taskraft.cli.exported_task import ExportedTask
    from taskraft.cli.progress import WorkProgress

SHOWN_MAX: Final = 20
"""Maximum number of reasons of refusals that are named."""
BATCH_OPERATIONS_MAX: Final = 100


class TaskImport:
    """Imports tasks into one tube."""

    def __init__(self, client: Client, tube: str, without: Collection[str]) -> None:
        self._client = client
        self._tube: Final[Tube] = client.tube(tube)
        found = client.list_tubes([tube])
        if not found:
            raise errors.TubeNotFound.named(tube)
        self._info: Final[TubeInfo] = found[0]
        self._restoration = TaskRestoration(self._info, without)

    def checked(self, exported: Sequence[ExportedTask]) -> list[ExportedTask]:
        """Return the tasks to put; nothing is changed.

        Raises:
            ValueError: some tasks cannot be restored exactly; they are named on standard error.
        """
        now_ms = self._now_ms()
        chosen = [one for one in exported if not self._restoration.is_left_out(one.task, now_ms)]
        refusals = {
            one.line: [str(each) for each in self._restoration.obstacles(one.task, now_ms)]
            for one in chosen
        }
        for one, conflict in self._key_conflicts(chosen, now_ms):
            refusals[one.line].append(conflict)
        named = [f"{one}: {text}" for one in chosen for text in refusals[one.line]]
        for text in named[:SHOWN_MAX]:
            tell(f"error: {text}")
        if named:
            count = sum(bool(texts) for texts in refusals.values())
            text = f"{count} of {len(exported)} tasks cannot be restored exactly"
            more = f" ({len(named)} reasons)" if len(named) > SHOWN_MAX else ""
            raise ValueError(f"nothing was imported: {text}{more}")
        self._check_room(chosen)
        return chosen

    def put(self, chosen: Sequence[ExportedTask], progress: WorkProgress) -> None:
        """Put checked tasks, each part with all its tasks or none.

        A request_id keeps the trace of this program out of the headers of the tasks.
        """
        done: list[int] = []
        with count_told(done):
            for part in parts(iter(chosen), lambda one: len(one.task.spec.payload)):
                now_ms = self._now_ms()
                planned = [
                    PlannedTask(self._info.name, self._restoration.spec(one.task, now_ms))
                    for one in part
                ]
                ids = self._tube.put_atomic(planned, request_id=str(uuid4()))
                done += ids
                buried = [
                    (task_id, one.task)
                    for task_id, one in zip(ids, part, strict=True)
                    if one.task.state == task_pb2.Task.BURIED
                ]
                with _unburied_named(self._info.name, [task_id for task_id, _ in buried]):
                    self._bury(buried)
                progress.advance(len(part))

    def _bury(self, put: Sequence[tuple[int, task_pb2.Task]]) -> None:
        """Bury each task with its reason, and then set the times to live.

        The time to live of a DELAYED task would begin after its delay.
        """
        for start in range(0, len(put), BATCH_OPERATIONS_MAX):
            some = put[start : start + BATCH_OPERATIONS_MAX]
            now_ms = self._now_ms()
            bury, update = Batch(), Batch()
            for task_id, task in some:
                if task.expire_at_ms:
                    left_ms = max(task.expire_at_ms - now_ms, 1)
                    update.update(self._info.name, task_id, ttl=left_ms / 1_000)
                reason = task.failure if task.HasField("failure") else None
                bury.bury(self._info.name, task_id, reason=reason)
            for batch in (bury, update):
                if len(batch):
                    self._client.execute(batch)

    def _now_ms(self) -> int:
        return self._tube.page(size=1, payload=False).now_ms

    def _key_conflicts(
        self, chosen: Sequence[ExportedTask], now_ms: int
    ) -> Iterator[tuple[ExportedTask, str]]:
        """Yield the tasks whose unique key conflicts with a task of the tube or of the import."""
        before: dict[tuple[str, ...], tuple[str, int, int]] = {}
        is_empty = not self._tube.page(size=1, payload=False).tasks
        for one in chosen:
            spec = one.task.spec
            key = tuple(spec.unique_key)
            if not key:
                continue
            holder = before.get(key) or (None if is_empty else self._holder(key))
            if holder is not None:
                name, state, created_ms = holder
                is_old = spec.HasField("unique_ms") and now_ms - created_ms >= spec.unique_ms
                if state in (spec.unique_states or UNFINISHED) and not is_old:
                    yield one, f"unique_key {'/'.join(key)} is in use by {name}"
            before[key] = str(one), one.task.state, now_ms

    def _holder(self, key: tuple[str, ...]) -> tuple[str, int, int] | None:
        """Return name, state and instant of the put of the task that has a key, or None."""
        try:
            task = self._tube.peek(key=key, payload=False)
        except errors.TaskNotFound:
            return None
        return str(task), task.message.state, task.message.created_ms

    def _check_room(self, chosen: Sequence[ExportedTask]) -> None:
        """Check that the tube accepts all tasks.

        Raises:
            ValueError: the tube is paused for puts, or has too little capacity.
        """
        options, tube = self._info.options, self._info.name
        if options.put_paused:
            raise ValueError(f"nothing was imported: puts into {tube} are paused")
        counts = self._tube.stats()
        size = sum(len(one.task.spec.payload) for one in chosen)
        buried = sum(one.task.state == task_pb2.Task.BURIED for one in chosen)
        for name, limit, used, more in (
            ("capacity_tasks", options.capacity_tasks, counts.tasks.total, len(chosen)),
            ("capacity_bytes", options.capacity_bytes, counts.payload_bytes, size),
            ("buried_max", options.buried_max, counts.tasks.buried, buried),
        ):
            if limit and more and used + more > limit:
                text = f"{name} of {tube} is {limit}, {used} are in use and {more} are needed"
                raise ValueError(f"nothing was imported: {text}")


@contextmanager
def _unburied_named(tube: str, ids: Sequence[int]) -> Iterator[None]:
    """Name the tasks whose burial an interruption may have left out."""
    try:
        yield
    except BaseException:
        if ids:
            text = f"of the tasks {ids[0]} to {ids[-1]} of {tube}, those to bury may be DELAYED"
            click.echo(f"{text}, or have a later deadline; delete them", err=True)
        raise
