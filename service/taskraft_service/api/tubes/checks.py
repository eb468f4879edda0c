"""Check the requests of TubeService, tube profiles and retry policies against the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.command_codecs.request_key import NO_KEY
from taskraft_service.command_codecs.retry_policy import retry_policy
from taskraft_service.command_codecs.tubes import OPTION_NAMES, tube_options, update_tube
from taskraft_service.queue.entities.option_checks import refusal_of_options
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.retry_policy import refusal_of_retry
from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.entities.tube_profiles import OWN, PROFILES
from taskraft_service.queue.operations.update_tube import UpdateTube

POSITIONS: Final = frozenset(task_pb2.TaskSpec.Position.values())
_Options = tube_service_pb2.TubeOptions
_ENUMS: Final[Mapping[str, frozenset[int]]] = {
    name: frozenset(choices.values_by_number)
    for name in OPTION_NAMES
    if (choices := _Options.DESCRIPTOR.fields_by_name[name].enum_type) is not None
}
"""Numbers of the choices of each option that is an enumeration."""


def check_create_tube(request: tube_service_pb2.CreateTubeRequest) -> None:
    """Check the definition of a new tube.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_tube("tube.name", request.tube.name)
    check_profile(violations, "profile", request.profile)
    profile = PROFILES.get(request.profile, OWN)
    _check_driver(violations, request.tube)
    known = _known_choices(violations, "tube.options", request.tube.options)
    violations.allow_zeros(lambda: profile.defines_zero)
    kinds = tube_service_pb2.Tube.Kind.values()
    if request.tube.kind == tube_service_pb2.Tube.KIND_UNSPECIFIED:
        violations.add("tube.kind", "missing")
    elif violations.check_choice("tube.kind", request.tube.kind, kinds):
        kind = TubeKind(request.tube.kind)
        merged = tube_options(known, kind, profile)
        violations.add_refused(
            refusal_of_options(
                request.tube.name,
                kind,
                merged,
                "tube.options",
                needs_capacity=profile.needs_capacity,
            )
        )
    violations.raise_if_any()


def _check_driver(violations: Violations, tube: tube_service_pb2.Tube) -> None:
    """Check that exactly a tube of kind CUSTOM names a driver."""
    if tube.kind == tube_service_pb2.Tube.CUSTOM:
        violations.check_name("tube.driver", tube.driver)
        violations.check_not_negative("tube.driver_version", tube.driver_version)
        return
    for field in ("driver", "driver_version"):
        if getattr(tube, field):
            violations.add(f"tube.{field}", "allowed only for a tube of kind CUSTOM")


def check_update_tube(
    request: tube_service_pb2.UpdateTubeRequest,
    refusal_of: Callable[[UpdateTube], Refusal | None],
    defines_zero: Callable[[Iterable[str]], bool],
) -> None:
    """Check an update of a tube.

    Args:
        request: the update.
        refusal_of: returns the violations that depend on the tube itself. Called only for an
            invalid request, so that one error reports all violations. For a valid request the queue
            checks them when the update is applied.
        defines_zero: see ``QueueReader.defines_zero``.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_tube("name", request.name)
    paths = request.update_mask.paths
    if not paths:
        violations.add("update_mask", "contains no option")
    for place, path in enumerate(paths):
        if path not in OPTION_NAMES:
            violations.add(f"update_mask.paths[{place}]", f"there is no option {path[:64]!r}")
    for field, _ in request.options.ListFields():
        if field.name not in paths:
            violations.add(f"options.{field.name}", "set, but not in update_mask")
    known = tube_service_pb2.UpdateTubeRequest(name=request.name)
    known.options.CopyFrom(_known_choices(violations, "options", request.options))
    violations.allow_zeros(partial(defines_zero, (request.name,)))
    if violations.is_any:
        known.update_mask.paths.extend(path for path in paths if path in OPTION_NAMES)
        violations.add_refused(refusal_of(update_tube(known, b"", NO_KEY)))
    violations.raise_if_any()


def _known_choices(violations: Violations, path: str, options: _Options) -> _Options:
    """Check enums and names of options; return the options without unknown enum values."""
    known = _Options()
    known.CopyFrom(options)
    for name, choices in _ENUMS.items():
        choice = getattr(options, name)
        if not violations.check_choice(f"{path}.{name}", choice, choices):
            setattr(known, name, 0)
    for name in ("ttl_ms", "ttr_ms"):
        if getattr(options, name) == 0:  # the queue checks the other values
            violations.check_limit(f"{path}.{name}", options, name)
    if options.dead_letter_tube:
        violations.check_tube(f"{path}.dead_letter_tube", options.dead_letter_tube)
    if options.HasField("retry"):
        known.retry.CopyFrom(_known_retry_policy(violations, f"{path}.retry", options.retry))
    return known


def check_tube_name(name: str, request_id: str = "", client_id: str = "") -> None:
    """Check the name of a tube and the key of the request.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_request_id(request_id, client_id)
    violations.check_tube("name", name)
    violations.raise_if_any()


def check_retry_policy(violations: Violations, path: str, policy: task_pb2.RetryPolicy) -> None:
    """Check the retry policy of a task, except whether its tube has a dead-letter tube."""
    known = retry_policy(_known_retry_policy(violations, path, policy))
    violations.add_refused(refusal_of_retry(known, None, path))


def _known_retry_policy(
    violations: Violations, path: str, policy: task_pb2.RetryPolicy
) -> task_pb2.RetryPolicy:
    """Check the enums of a retry policy; return the policy without unknown values."""
    known = task_pb2.RetryPolicy()
    known.CopyFrom(policy)
    if not violations.check_choice(
        f"{path}.exhausted", policy.exhausted, type(policy).Exhausted.values()
    ):
        known.ClearField("exhausted")
    if not violations.check_choice(f"{path}.position", policy.position, POSITIONS):
        known.ClearField("position")
    return known


def check_profile(violations: Violations, path: str, name: str) -> None:
    """Check that a profile exists."""
    if name not in PROFILES:
        names = ", ".join(filter(None, PROFILES))
        violations.add(path, f"there is no profile {name[:32]!r}; use one of {names}")
