"""Encode tubes and their statistics as messages of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft_service.command_codecs.tubes import OPTION_NAMES, merged_options
from taskraft_service.queue.entities.instants import FOREVER_MS, in_wall_time
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.retry_policy import RetryPolicy
from taskraft_service.queue.entities.task_state import BURIED, DELAYED, HELD, READY, TAKEN
from taskraft_service.queue.entities.tube_counters import CountedOperation, OperationCounts
from taskraft_service.queue.entities.tube_options import OPTION_ROWS, TubeOptions, TubeView
from taskraft_service.queue.entities.tube_profiles import PROFILES, suitable
from taskraft_service.queue.state.tube_statistics import TubeStatistics

_Options = tube_service_pb2.TubeOptions
_STATES_WITH_TTL: Final = (READY, DELAYED, TAKEN, BURIED, HELD)
"""States in which a task can expire because its TTL ends."""


def tube_message(view: TubeView, wall_offset_ms: int) -> tube_service_pb2.Tube:
    """Return a tube as a message, with the options in force."""
    return tube_service_pb2.Tube(
        name=view.name,
        kind=tube_service_pb2.Tube.Kind.ValueType(view.kind),
        options=options_message(view.options),
        created_ms=in_wall_time(view.created_ms, wall_offset_ms),
        driver=view.driver,
        driver_version=view.driver_version,
        profile=view.profile,
        quarantined_at=view.quarantined_at,
    )


def options_message(own: TubeOptions) -> tube_service_pb2.TubeOptions:
    """Return the options in force as a message; an option without a limit is absent."""
    shown: dict[str, Any] = {name: write(getattr(own, of)) for name, of, write in _CONVERTED}
    for name, of, omitted in _UNCHANGED:
        option = getattr(own, of)
        if option != omitted:
            shown[name] = option
    return _Options(**shown)


def differences(request: tube_service_pb2.CreateTubeRequest, view: TubeView) -> Iterator[str]:
    """Yield the paths of the given fields of a request that differ from an existing tube."""
    tube = request.tube
    if tube.kind != view.kind.value:
        yield "tube.kind"
    if tube.driver and tube.driver != view.driver:
        yield "tube.driver"
    if tube.driver_version and tube.driver_version != view.driver_version:
        yield "tube.driver_version"
    if request.profile and request.profile != view.profile:
        yield "profile"
    wanted = merged_options(tube.options, view.options)
    if PROFILES[view.profile].ignores_unsupported:
        wanted = suitable(view.kind, wanted)
    for field, _ in tube.options.ListFields():
        name = OPTION_NAMES[field.name]
        given, in_force = getattr(wanted, name), getattr(view.options, name)
        if name.endswith("_ms"):
            given, in_force = min(given, FOREVER_MS), min(in_force, FOREVER_MS)
        if given != in_force:
            yield f"tube.options.{field.name}"


def _retry_message(policy: RetryPolicy) -> task_pb2.RetryPolicy:
    Retry = task_pb2.RetryPolicy  # noqa: N806 - a class
    return Retry(
        attempts_max=policy.attempts_max,
        backoff_ms=policy.backoff_ms,
        factor_percent=policy.factor_percent,
        backoff_ms_max=policy.backoff_ms_max,
        jitter_percent=policy.jitter_percent,
        exhausted=Retry.Exhausted.ValueType(policy.exhausted),
        position=task_pb2.TaskSpec.Position.ValueType(policy.position),
    )


_CONVERTED: Final = (
    (
        "priority_order",
        "higher_first",
        lambda higher: _Options.HIGHER_FIRST if higher else _Options.LOWER_FIRST,
    ),
    ("retry", "retry", _retry_message),
    ("subqueue_weights", "subqueue_weights", dict),
)
"""Options whose values differ in the contract: the name in the contract, the name in the core, and
the conversion."""
_UNCHANGED: Final = tuple(
    (row.contract_name, row.name, row.default if row.omits_default else None)
    for row in OPTION_ROWS
    if row.contract_name not in {name for name, _, _ in _CONVERTED}
)
"""Field, option and default of each option that needs no conversion. A message leaves out an option
with its default; None: the message always has the option."""


def _calls(counted: OperationCounts) -> tube_service_pb2.TubeStatistics.Calls:
    """Return counts of operations by the names of the contract."""
    calls = {kind.name: counted.by_kind[kind] for kind in EventKind}
    noted = {call.name.lower(): counted.noted[call] for call in CountedOperation}
    expired = {f"ttl_{state.name.lower()}": counted.expired[state] for state in _STATES_WITH_TTL}
    return tube_service_pb2.TubeStatistics.Calls(
        put=calls["PUT"],
        take=calls["TAKE"],
        ack=calls["ACK"],
        release=calls["RELEASE"],
        bury=calls["BURY"],
        kick=calls["KICK"],
        delete=calls["DELETE"],
        touch=calls["TOUCH"],
        ttl=calls["TTL_EXPIRED"],
        ttr=calls["TTR_EXPIRED"],
        delay=calls["DELAY_DUE"],
        session_release=calls["SESSION_RELEASE"],
        startup_release=calls["STARTUP_RELEASE"],
        truncate=calls["TRUNCATE"],
        finished=counted.finished,
        release_all=calls["RELEASE_ALL"],
        move=calls["MOVE"],
        snatch=calls["SNATCH"],
        restart=calls["RESTART"],
        switch=calls["SWITCH"],
        cancel=calls["CANCEL"],
        update=calls["UPDATE"],
        group_start=calls["GROUP_START"],
        dependencies_done=calls["DEPENDENCIES_DONE"],
        dependency_failed=calls["DEPENDENCY_FAILED"],
        retention=calls["RETENTION_EXPIRED"],
        **noted,
        **expired,
    )


def statistics_message(
    counts: TubeStatistics,
    waiting: int,
    wall_offset_ms: int,
    *,
    transitions: bool,
    brief: bool = False,
) -> tube_service_pb2.TubeStatistics:
    """Return the statistics of a tube as a message; brief: without counts of operations."""
    by_state = {state.name.lower(): tasks for state, tasks in counts.states.items()}
    Statistics = tube_service_pb2.TubeStatistics  # noqa: N806 - a class
    message = Statistics(
        tube=counts.tube,
        tasks=Statistics.Tasks(**by_state, total=counts.total),
        calls=None if brief else _calls(counts.calls),
        calls_since_start=None if brief else _calls(counts.fresh),
        oldest_ready_ms=in_wall_time(counts.oldest_ready_ms, wall_offset_ms),
        payload_bytes=counts.payload_bytes,
        waiting=waiting,
    )
    if transitions:
        for move in counts.transitions:
            message.transitions.add(
                from_state=task_pb2.Task.State.ValueType(move.from_state),
                to_state=task_pb2.Task.State.ValueType(move.to_state),
                count=move.count,
                crossing=move.crossing,
            )
    return message


def total_message(
    counts: TubeStatistics, waiting: int, wall_offset_ms: int, *, transitions: bool
) -> tube_service_pb2.TubeStatistics:
    """Return the sum of the statistics of several tubes as a message.

    A task that moved from one tube to another counts as one transition, from TAKEN to its state in
    the other tube.
    """
    message = statistics_message(counts, waiting, wall_offset_ms, transitions=False)
    moves: dict[tuple[int, int], int] = {}
    for move in counts.transitions if transitions else ():
        if move.crossing and not move.to_state:
            continue  # the other tube counts the arrival
        key = (task_pb2.Task.TAKEN if move.crossing else move.from_state, move.to_state)
        moves[key] = moves.get(key, 0) + move.count
    for (from_state, to_state), count in sorted(moves.items()):
        message.transitions.add(
            from_state=task_pb2.Task.State.ValueType(from_state),
            to_state=task_pb2.Task.State.ValueType(to_state),
            count=count,
        )
    return message
