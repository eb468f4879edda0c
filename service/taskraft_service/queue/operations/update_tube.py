"""Change the options of a tube while the tube is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from taskraft_service.queue.entities.option_checks import refusal_of_options
from taskraft_service.queue.entities.refusal import Reason, Refusal, first_of, invalid
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_options import OPTION_ROWS, TubeOptions
from taskraft_service.queue.entities.tube_profiles import defaults_of, suitable
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    ReadyPrediction,
    replicated,
)
from taskraft_service.queue.operations.tubes import TUBE_ANSWER, TubeResult
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import refusal_of_dead_letter_tube
from taskraft_service.queue.transitions.endings import note_surplus
from taskraft_service.queue.values import value


@value
class UpdateTube:
    """Set the named options of a tube; options in ``resets`` get the profile's default.

    Only the fields of ``options`` that are in ``names`` are used. Answer: ``TubeResult``.
    """

    name: str
    options: TubeOptions
    names: Sequence[str] = ()
    resets: Sequence[str] = ()
    request_id: str = ""
    request_hash: int = 0


_FIXED: Final = tuple(row for row in OPTION_ROWS if row.is_fixed)
WHILE_EMPTY: Final[Mapping[str, Callable[[object], object]]] = {
    "ttl_scope": lambda scope: scope,
    "subqueue_weights": bool,
}
"""Options that can change only while the tube is empty, because its tasks depend on them.

Existing weights can change at any time, but weights cannot be introduced or removed while the tube
has tasks.
"""


def update_tube(state: QueueState, command: UpdateTube) -> TubeResult | Refusal:
    """Set options of a tube, all or none; they apply from now on.

    Existing deadlines do not change. With a capacity below the current content, puts are refused
    until the tube has shrunk. With a lower concurrency, existing leases continue. Buried tasks
    above a lower maximum are removed at once, in bounded steps.
    """
    tube = state.tubes.find(command.name)
    if isinstance(tube, Refusal):
        return tube
    options = _changed(tube, command)
    refusal = _refusal(state, tube, options)
    if refusal is not None:
        return refusal
    if options != tube.options:
        tube.set_options(options, state.now_ms)
        tube.ready.configure(options, state.now_ms)
        state.set_tube_timer(tube)
        note_surplus(state, tube)
        state.signals.signal_redefined(tube)
    return TubeResult(tube.view(), existed=True)


def _changed(tube: QueueTube, command: UpdateTube) -> TubeOptions:
    """Return the options with the changes; a profile may ignore unsupported options."""
    defaults = defaults_of(tube.rules, tube.kind)
    set_ = {name: getattr(command.options, name) for name in command.names}
    reset = {name: getattr(defaults, name) for name in command.resets}
    options: TubeOptions = replace(tube.options, **set_, **reset)
    if tube.rules.ttr_is_ttl and "ttr_ms" in command.resets:
        options = replace(options, ttr_ms=options.ttl_ms)
    return suitable(tube.kind, options) if tube.rules.ignores_unsupported else options


def refusal_of_tube_update(state: QueueState, command: UpdateTube) -> Refusal | None:
    """Return why a tube cannot be updated, or None; None for an unknown tube."""
    tube = state.tubes.get(command.name)
    return None if tube is None else _refusal(state, tube, _changed(tube, command))


def _refusal(state: QueueState, tube: QueueTube, options: TubeOptions) -> Refusal | None:
    """Return why a tube cannot get these options, or None."""
    found = (
        *_refusals_of_fixed(tube, options),
        refusal_of_dead_letter_tube(state, options, "options"),
        refusal_of_options(
            tube.name, tube.kind, options, "options", needs_capacity=tube.rules.needs_capacity
        ),
    )
    refusals = [refusal for refusal in found if refusal is not None]
    if refusals:
        return first_of(refusals)
    count = sum(tube.counters.states)
    for name in _changed_essence(tube, options):
        if count:
            return Refusal(
                Reason.TUBE_BUSY,
                f"{name} can change only while the tube is empty; it has {count} tasks",
                {"field": name, "tasks": str(count)},
            )
    return None


def _refusals_of_fixed(tube: QueueTube, options: TubeOptions) -> Iterator[Refusal]:
    """Yield a refusal for each changed option that is fixed at creation."""
    metadata = {"kind": tube.kind.name}
    for row in _FIXED:
        if getattr(options, row.name) != getattr(tube.options, row.name):
            path = f"options.{row.contract_name}"
            yield invalid(path, "is fixed when the tube is created", metadata)
    if tube.is_temporary:
        # The tasks of a temporary tube are in another queue, so this queue does not know their
        # number.
        for name in _changed_essence(tube, options):
            text = "is fixed when a temporary tube is created"
            yield invalid(f"options.{name}", text, metadata)


def _changed_essence(tube: QueueTube, options: TubeOptions) -> Sequence[str]:
    """Return the names of the options in ``WHILE_EMPTY`` that an update would change."""
    return [
        name
        for name, essence in WHILE_EMPTY.items()
        if essence(getattr(options, name)) != essence(getattr(tube.options, name))
    ]


def _predict(prediction: ReadyPrediction, command: UpdateTube) -> None:
    prediction.add((command.name,))


DEFINITION: Final = CommandDefinition(
    UpdateTube, update_tube, predict=_predict, side=replicated, answer=TUBE_ANSWER
)
