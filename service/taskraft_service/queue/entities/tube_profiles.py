"""Bundle the defaults and rules of older queue systems into profiles.

A profile sets the options that the creator of a tube leaves out, and a few rules that are not
options. Sources: tarantool/queue 1.5, moonlibs/xqueue, the queue of Tarantool 1.5 (t15), rstudio's
rsqueue. docs/migration.md has a table for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.retry_policy import SAFE_RETRY, Exhausted, RetryPolicy
from taskraft_service.queue.entities.tube_options import (
    SUBQUEUE_KINDS,
    TIMED_KINDS,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
    unsupported_options,
)
from taskraft_service.queue.values import value

DAY_MS: Final = 86_400_000


@value
class TubeProfile:
    """Rules of the tubes of a profile.

    ``ttr_is_ttl``: the default time to run is the tube's time to live. ``ignores_unsupported``:
    unsupported fields are ignored instead of refused. ``touches_untimed``: leases can be extended
    in tubes without a time to run. ``needs_capacity``: a tube of kind LIMFIFOTTL must have a
    capacity. ``defines_zero``: a time to live or to run of 0 ends a task or a lease at once; the
    API refuses 0 in other tubes.
    """

    name: str
    defaults: TubeOptions = TubeOptions()
    ttr_is_ttl: bool = False
    ignores_unsupported: bool = False
    touches_untimed: bool = True
    needs_capacity: bool = True
    defines_zero: bool = True


OWN: Final = TubeProfile("", TubeOptions(retry=SAFE_RETRY), defines_zero=False)
TARANTOOL: Final = TubeProfile(
    "tarantool",
    TubeOptions(priority_min=0),
    ttr_is_ttl=True,
    ignores_unsupported=True,
    touches_untimed=False,
    needs_capacity=False,
)
XQUEUE: Final = TubeProfile(
    "xqueue",
    TubeOptions(ttl_scope=TtlScope.READY_ONLY, ttl_policy=TtlPolicy.RESET),
)
T15: Final = TubeProfile(
    "t15",
    TubeOptions(
        higher_first=True,
        priority=127,
        priority_min=0,
        priority_max=255,
        ttl_ms=25 * DAY_MS,
        ttr_ms=60_000,
        ttl_scope=TtlScope.ALL,
        ttl_policy=TtlPolicy.KEEP_DEADLINE,
    ),
)
RSQUEUE: Final = TubeProfile(
    "rsqueue",
    TubeOptions(priority_min=0, retry=RetryPolicy(exhausted=Exhausted.REMOVE)),
)

PROFILES: Final[Mapping[str, TubeProfile]] = {
    profile.name: profile for profile in (OWN, TARANTOOL, XQUEUE, T15, RSQUEUE)
}
"""Profiles by name; the empty name is taskraft's own profile."""

_PLAIN: Final = TubeOptions()


def defaults_of(profile: TubeProfile, kind: TubeKind) -> TubeOptions:
    """Return the default options of a tube."""
    return suitable(kind, profile.defaults)


def suitable(kind: TubeKind, options: TubeOptions) -> TubeOptions:
    """Return the options without the options that a kind of tube does not support."""
    return replace(options, **{name: getattr(_PLAIN, name) for name in unsupported_options(kind)})


def suitable_task(kind: TubeKind, task: NewTask) -> NewTask:
    """Return a task without the attributes that a kind of tube does not support."""
    if kind not in TIMED_KINDS:
        task = replace(
            task, priority=None, delay_ms=None, ttl_ms=None, ttr_ms=None, visible_at_ms=None
        )
    return task if kind in SUBQUEUE_KINDS else replace(task, subqueue="")
