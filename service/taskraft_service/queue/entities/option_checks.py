"""Check the options of a tube: ranges, consistency, and support by the kind of tube."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from taskraft_service.limits import SUBQUEUE_BYTES_MAX
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.refusal import Refusal, first_of, invalid
from taskraft_service.queue.entities.retry_policy import refusal_of_retry
from taskraft_service.queue.entities.tube_options import (
    COUNT_MAX,
    OPTION_ROWS,
    OnAck,
    TubeKind,
    TubeOptions,
    unsupported_options,
)

SUBQUEUE_WEIGHTS_MAX: Final = 1_000
_ROWS: Final = {row.name: row for row in OPTION_ROWS}
_RANGES: Final = sorted(
    ((row.least, row.most or 0, row.name) for row in OPTION_ROWS if row.least is not None),
    key=lambda found: found[:2],
)
"""Minimum, maximum and name of the options with a range, in the order in which they are checked; a
maximum of 0 means no maximum."""


def refusal_of_options(
    name: str, kind: TubeKind, options: TubeOptions, path: str, *, needs_capacity: bool = True
) -> Refusal | None:
    """Return which options of a tube are invalid, or None; ``path`` prefixes the field names.

    ``name`` is the name of the tube. ``needs_capacity``: a tube of kind LIMFIFOTTL must have a
    capacity. The violations name the options as the contract does.
    """
    found = [
        *_unsupported_options(kind, options),
        *_out_of_range(options),
        *_contradictory(name, options),
        *(_without_capacity(kind, options) if needs_capacity else ()),
    ]
    refusals = [invalid(f"{path}.{field}", text, {"kind": kind.name}) for field, text in found]
    retry = refusal_of_retry(options.retry, options.dead_letter_tube, f"{path}.retry")
    if retry is not None:
        refusals.append(retry)
    return first_of(refusals) if refusals else None


def is_period(retain_ms: int) -> bool:
    """Return whether a retention period is valid for a ZOMBIE: greater than 0 ms and finite."""
    return 0 < retain_ms < FOREVER_MS


def _unsupported_options(kind: TubeKind, options: TubeOptions) -> Iterator[tuple[str, str]]:
    """Yield options that the kind of the tube does not support."""
    for name in unsupported_options(kind):
        given, row = getattr(options, name), _ROWS[name]
        if given != row.default:
            text = f"{_shown(given)} is not supported in a tube of kind {kind.name}"
            yield row.contract_name, text


def _shown(given: object) -> str:
    """Return a value by its name in the contract."""
    if given is True:  # the only bool option that some kinds do not support
        return "HIGHER_FIRST"
    if isinstance(given, tuple):  # shorten weights, because there can be many with long names
        (name, weight), *more = given
        return f"{name[:32]!r}: {weight}" + (f" and {len(more)} more" if more else "")
    return given.name if isinstance(given, IntEnum) else str(given)


def _out_of_range(options: TubeOptions) -> Iterator[tuple[str, str]]:
    for least, most, name in _RANGES:
        number = getattr(options, name)
        if most and not least <= number <= most:
            yield name, f"{number} is not from {least} to {most}"
        elif number < least:
            yield name, f"{number} is less than {least}"
    if len(options.subqueue_weights) > SUBQUEUE_WEIGHTS_MAX:
        count = len(options.subqueue_weights)
        yield "subqueue_weights", f"{count} items, more than {SUBQUEUE_WEIGHTS_MAX}"
    for subqueue, weight in options.subqueue_weights:
        path = f"subqueue_weights[{subqueue[:32]}]"
        if not 1 <= weight <= COUNT_MAX:
            yield path, f"{weight} is not from 1 to {COUNT_MAX}"
        if len(subqueue.encode()) > SUBQUEUE_BYTES_MAX:
            yield path, f"{len(subqueue.encode())} bytes, more than {SUBQUEUE_BYTES_MAX}"


def _contradictory(name: str, options: TubeOptions) -> Iterator[tuple[str, str]]:
    """Yield options that contradict other options."""
    low, high = options.priority_min, options.priority_max
    if low > high:
        yield "priority_min", f"{low} is more than priority_max, {high}"
    elif not low <= options.priority <= high:
        yield "priority", f"{options.priority} is not from {low} to {high}"
    is_given = options.retain_ms >= 0
    if options.on_ack is OnAck.RETAIN and is_given and not is_period(options.retain_ms):
        yield "retain_ms", "RETAIN needs a period (KEEP is forever)"
    if options.rate_burst and not options.rate_per_second:
        yield "rate_burst", "needs rate_per_second as well"
    if options.subqueue_rate_burst and not options.subqueue_rate_per_second:
        yield "subqueue_rate_burst", "needs subqueue_rate_per_second as well"
    if name and options.dead_letter_tube == name:
        yield "dead_letter_tube", "is the tube itself"


def _without_capacity(kind: TubeKind, options: TubeOptions) -> Iterator[tuple[str, str]]:
    if kind is TubeKind.LIMFIFOTTL and not (options.capacity_tasks or options.capacity_bytes):
        yield "capacity_tasks", "a tube of kind LIMFIFOTTL needs capacity_tasks or capacity_bytes"
