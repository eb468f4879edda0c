"""Implement the replicated state machine: apply entries, collect writes, answer queries.

A queue is the state of one replica. Only one thread may use it. Replicas that apply the same
entries have the same state. The set of tasks in memory and the times at which writes are collected
do not affect the state.

Adjacent commands of the same kind are executed together if the effect is the same: takes of one
task from the same tube, and plain acknowledgements. If the leader serves many consumers, an entry
holds one take and one acknowledgement of each consumer. Executed one by one, each command would
take several times as long as its task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeAlias, cast

from taskraft_service.queue.clock import advance
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_driver import NO_DRIVERS, TubeDriver
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.acknowledge import is_plain
from taskraft_service.queue.operations.audit import add_act
from taskraft_service.queue.operations.dependencies import settle_dependents
from taskraft_service.queue.operations.group_steps import (
    forget_groups,
    settle_groups,
    sweep_groups,
)
from taskraft_service.queue.operations.lease_returns import continue_returns
from taskraft_service.queue.operations.registry import (
    ANSWERS,
    DEFINITIONS,
    EXECUTE,
    Command,
    LoggedCommand,
    ManagedCommand,
    Result,
)
from taskraft_service.queue.operations.settle import settle_each
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take, TakeResult, take_each
from taskraft_service.queue.operations.tubes import clear_away
from taskraft_service.queue.persistence.state_records import bare_task, collect, open_state
from taskraft_service.queue.persistence.task_writes import collect_some_tasks
from taskraft_service.queue.reading.readers import QueueReaders
from taskraft_service.queue.state.content_work import Editor, unchanged
from taskraft_service.queue.state.queue_state import (
    BEGINNING,
    CounterOrigin,
    QueueState,
)
from taskraft_service.queue.store.idempotency import without_scope
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.transitions.endings import remove_surplus

Likeness: TypeAlias = tuple[str, int | None] | None
"""Key of a command: adjacent commands with equal keys are executed together, and a command with the
key None is executed alone.
"""

AHEAD_STEP: Final = 1_024
"""Maximum number of tasks that one call of ``read_ahead`` reads, in about 8 ms: about as many as an
entry takes, so that takes do not overtake the reads."""
SETTLES: Likeness = ("", None)
"""Key of plain acknowledgements; the key of a take has a tube name instead."""


def runs(
    commands: Sequence[LoggedCommand],
) -> Iterable[tuple[Likeness, Sequence[LoggedCommand]]]:
    """Split the commands of an entry into runs that can be executed together."""
    if len(commands) < 2:
        return ((None, commands),)
    return [(likeness, list(run)) for likeness, run in groupby(commands, _likeness)]


def _likeness(command: LoggedCommand) -> Likeness:
    """Return the key that tells which adjacent commands can be executed together."""
    if isinstance(command, Settle):
        if len(command.settlements) == 1 and not command.atomic:
            only = command.settlements[0]
            if isinstance(only, Ack) and is_plain(only):
                return SETTLES
    elif isinstance(command, Take):
        wants_one = command.tasks_max == 1 and len(command.tubes) == 1 and command.task_id is None
        if wants_one and not command.types and command.priority_bound is None:
            return command.tubes[0], command.ttr_ms
    return None


def execute_together(state: QueueState, run: Sequence[Command]) -> Sequence[Result]:
    """Execute a run of commands together; return the results of the first commands.

    There may be fewer results than commands, or none; the remaining commands are not executed.
    """
    named = [command.request_id for command in run if command.request_id]
    if named and (len(set(named)) < len(named) or any(map(state.requests.find, named))):
        return ()
    answers = _do_together(state, run)
    if named:
        for place, answer in enumerate(answers):
            remember(state, run[place], answer)
    return answers


def _do_together(state: QueueState, run: Sequence[Command]) -> Sequence[Result]:
    if isinstance(run[0], Take):
        return take_each(state, [command for command in run if isinstance(command, Take)])
    return settle_each(state, [command for command in run if isinstance(command, Settle)])


def execute_managed(state: QueueState, managed: ManagedCommand) -> Result:
    """Execute a command, and record its act, unless it repeats a request."""
    command = managed.command
    request_id = command.request_id
    is_repeated = bool(request_id) and state.requests.find(request_id) is not None
    result = execute(state, command)
    if not is_repeated:
        add_act(state, managed.act, result)
    return result


def execute(state: QueueState, command: LoggedCommand) -> Result:
    """Execute a command; answer a repeated request id with the result of the first request.

    A request id that was used with another request is refused.
    """
    if isinstance(command, ManagedCommand):
        return execute_managed(state, command)
    state.content.size = 0
    request_id = command.request_id
    if not request_id:
        return EXECUTE[type(command)](state, command)
    known = state.requests.find(request_id)
    if known is not None:
        request_hash, revision, kept = known
        if request_hash != command.request_hash:
            return Refusal(
                Reason.REQUEST_ID_REUSED,
                "this request_id was used before with another request, by the same principal with "
                "the same client_id; use a new request_id, or a client_id of your own",
                {"request_id": without_scope(request_id)},
            )
        answer: Result = ANSWERS[kept[0]].repeat(state, kept)
        state.repeated[request_id] = revision or state.index
        return answer
    result = EXECUTE[type(command)](state, command)
    remember(state, command, result)
    return result


def remember(state: QueueState, command: Command, result: Result) -> None:
    """Store the result of a command with a request id, to answer repeated requests.

    Refusals, and takes that found no task, are not stored, because they had no effect. A retry with
    the same request id is executed again.
    """
    if isinstance(result, Refusal) or (isinstance(result, TakeResult) and not result.tasks):
        return
    if command.request_id:
        codec = DEFINITIONS[type(command)].answer
        assert codec is not None, f"{type(command).__name__} has a request id but keeps no answer"
        kept = codec.write(result)
        state.requests.remember(command.request_id, command.request_hash, state.index, kept)


def _take_steps(state: QueueState) -> None:
    """Take the next steps of the work that spans several entries."""
    steps = state.steps
    if steps.grow(state.stamp.place, state.limits.steps_max):
        advance(state, state.now_ms)
    if state.surplus:
        remove_surplus(state, steps.room)
    if state.removals:
        clear_away(state)
    if state.lease_returns:
        continue_returns(state)
    settle_groups(state)
    if state.groups.sweeps:
        sweep_groups(state)
    if state.dependents.has_endings and settle_dependents(state, steps.room):
        settle_groups(state)


class Queue(QueueReaders):
    """The state machine of tubes, tasks, sessions, groups and schedules."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        new_task: Callable[[bytes], NewTask] = bare_task,
        editor: Editor = unchanged,
        drivers: Mapping[str, TubeDriver] = NO_DRIVERS,
        origin: CounterOrigin = BEGINNING,
    ) -> None:
        """Open the queue that ``store`` holds; an empty store gives an empty queue.

        Args:
            store: the stored state at one applied index.
            limits: bounds of this node's queue.
            new_task: parses a stored TaskSpec, for tasks that the queue itself puts. Must be a
                pure function that is the same on all replicas.
            editor: changes the content of tasks. Must be a pure function that is the same on all
                replicas.
            drivers: installed tube drivers, by name.
            origin: initial values of the counters of an empty store.

        Raises:
            TubeDriverMissing: a tube needs a driver that is not installed. ``apply`` also
                raises this error for a command that creates such a tube, and the node stops.
        """
        super().__init__(open_state(store, limits, new_task, editor, drivers, origin))
        self.repeated: dict[str, int] = {}
        """Revisions of earlier requests that commands of the last entry repeat, by request id."""
        self.ahead: deque[tuple[QueueTube, Sequence[int]]] = deque()
        """Tasks to prefetch, by tube; the store has their records until the next batch."""

    def apply(self, index: int, now_ms: int, commands: Sequence[LoggedCommand]) -> list[Result]:
        """Apply one entry: fire deadlines up to ``now_ms``, then execute the commands in order.

        ``index`` must increase and ``now_ms`` must not decrease. Returns one result per command.
        After an exception the state is undefined and the queue must no longer be used.
        """
        state = self._state
        assert index > state.index, f"entry {index} after {state.index}"
        state.index = index
        stamp = state.stamp
        stamp.revision, stamp.place = index, 0
        stamp.at_ms = at_ms = max(now_ms + state.wall_offset_ms, state.event_floor_ms)
        stamp.ahead_ms = at_ms - now_ms
        groups, dependents = state.groups, state.dependents
        limits, steps = state.limits, state.steps
        steps.left = steps.total = limits.steps_beside_max if commands else limits.steps_alone_max
        self.applied_index, self.now_ms = index, now_ms
        advance(state, now_ms)
        if state.surplus:
            remove_surplus(state, steps.left)
        if dependents.first < dependents.following:
            settle_dependents(state, steps.left)
        if groups.complete:
            settle_groups(state)
        results: list[Result] = []
        self.repeated = state.repeated = {}
        for likeness, run in runs(commands):
            done = 0
            if likeness is not None and len(run) > 1:
                # A managed command has no likeness, so it is not part of a run.
                together = execute_together(state, cast("Sequence[Command]", run))
                results += together
                done = len(together)
            for command in run[done:] if done else run:
                results.append(execute(state, command))
                if state.surplus:
                    remove_surplus(state, steps.left)
                if dependents.first < dependents.following:
                    settle_dependents(state, steps.left)
                if groups.complete:
                    settle_groups(state)
        self._end_entry()
        self.wall_offset_ms = state.wall_offset_ms
        return results

    def _end_entry(self) -> None:
        """Continue long work after the commands of an entry, and delete old records."""
        state = self._state
        limits, failures, dependents = state.limits, state.failures, state.dependents
        if self.cluster is not state.cluster:
            self.cluster = state.cluster
            self.has_old_format = state.format != state.cluster.formats.state
        is_under_way = state.removals or state.surplus or state.groups.sweeps or state.lease_returns
        has_endings = dependents.first < dependents.following
        if is_under_way or has_endings or state.stamp.place > state.steps.total:
            _take_steps(state)
        if state.retired:
            state.evict_retired(limits.evicted_max)
        if state.groups.ended.in_order:
            forget_groups(state)
        if failures.first < failures.following:
            failures.forget_old(state.now_ms, limits)
        audit_from_ms = state.stamp.at_ms - limits.audit_retention_ms
        if state.audit.oldest_ms < audit_from_ms:
            state.audit.forget_old(audit_from_ms, limits)

    @property
    def unwritten_tasks(self) -> tuple[int, int]:
        """Return how many changed tasks the next batch of writes covers, and how many are fresh.

        A fresh task was put since the last batch, and no take has leased it.
        """
        state = self._state
        return len(state.dirty_tasks), state.fresh_tasks

    @property
    def steps_taken(self) -> int:
        """Return how many steps of long work the last entry has executed."""
        steps = self._state.steps
        return steps.total - steps.left

    def collect_some(self) -> Iterable[Write]:
        """Return the changes of the next tasks; ``collect_writes`` returns all other changes.

        Write both in one batch, and apply no entry in between.
        """
        return collect_some_tasks(self._state)

    def collect_writes(self) -> Iterable[Write]:
        """Return the changes since the last call, to be written in one batch.

        Write the batch before the next call of any method, because this call evicts tasks and
        later calls read the evicted tasks from the store.
        """
        self.ahead.clear()
        return collect(self._state)

    def adopt_format(self) -> None:
        """Write all later batches in the format of the cluster version.

        Before the call, all changes must be collected, and the store must be converted. The state
        in memory has the same form for all formats.
        """
        assert not self._state.dirty_tasks
        self._state.format = self._state.cluster.formats.state
        self.has_old_format = False

    def look_ahead(self) -> None:
        """Find tasks that takes will need soon.

        Call this method after each batch of writes, and ``read_ahead`` before each entry while
        ``ahead`` has tasks. The tasks are those of the tubes that changed before the batch.
        """
        state = self._state
        self.ahead.clear()
        tubes, state.tubes.used = state.tubes.used, []
        for tube in tubes:
            is_there = tube.number in state.tubes.by_number  # not truncated or dropped since then
            if is_there and len(tube.tasks) < sum(tube.counters.states):
                coming = [entry[-1] for entry in tube.ready.coming(state.limits.ahead_tasks_max)]
                missing = [task_id for task_id in coming if task_id not in tube.tasks]
                for first in range(0, len(missing), AHEAD_STEP):
                    self.ahead.append((tube, missing[first : first + AHEAD_STEP]))

    def read_ahead(self) -> None:
        """Prefetch the next tasks of ``ahead``; the replicated state does not change."""
        state = self._state
        tube, missing = self.ahead.popleft()
        if state.resident_bytes > state.limits.resident_bytes_max:
            self.ahead.clear()
        elif tube.number in state.tubes.by_number:
            state.bring_all(tube, missing)

    def next_deadline_ms(self) -> int | None:
        """Return the time at which the leader must propose an entry without commands, or None."""
        state = self._state
        dependents = state.dependents
        is_under_way = state.removals or state.surplus or state.groups.sweeps or state.lease_returns
        if is_under_way or dependents.first < dependents.following:
            return state.now_ms
        timer = state.timers.least()
        return timer[0] if timer is not None else None
