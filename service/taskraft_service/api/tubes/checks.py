"""Check the requests of TubeService and SessionService against the limits of the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from taskraft.v1 import schedule_service_pb2, session_service_pb2, tube_service_pb2
from taskraft_service import limits
from taskraft_service.api.cluster.settings_checks import check_profile
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.tasks.update_checks import known_retry
from taskraft_service.command_codecs.tubes import OPTION_NAMES, tube_options, update_tube
from taskraft_service.queue.entities.option_checks import violations
from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.entities.tube_profiles import OWN, PROFILES
from taskraft_service.queue.operations.update_tube import UpdateTube

_Options = tube_service_pb2.TubeOptions
PageRequest: TypeAlias = (
    tube_service_pb2.ListTubesRequest
    | tube_service_pb2.GetStatisticsRequest
    | session_service_pb2.ListSessionsRequest
    | schedule_service_pb2.ListSchedulesRequest
)
"""A read of one page of a list."""

_ENUMS: Final[Mapping[str, frozenset[int]]] = {
    "priority_order": frozenset(_Options.PriorityOrder.values()),
    "ttl_scope": frozenset(_Options.TtlScope.values()),
    "ttl_policy": frozenset(_Options.TtlPolicy.values()),
    "on_ack": frozenset(_Options.OnAck.values()),
    "durability": frozenset(_Options.Durability.values()),
}


def check_create_tube(request: tube_service_pb2.CreateTubeRequest) -> None:
    """Refuse a tube that breaks a limit."""
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    wrong.check_tube("tube.name", request.tube.name)
    check_profile(wrong, "profile", request.profile)
    profile = PROFILES.get(request.profile, OWN)
    _check_driver(wrong, request.tube)
    known = _known_choices(wrong, "tube.options", request.tube.options)
    kinds = tube_service_pb2.Tube.Kind.values()
    if request.tube.kind == tube_service_pb2.Tube.KIND_UNSPECIFIED:
        wrong.add("tube.kind", "missing")
    elif wrong.check_choice("tube.kind", request.tube.kind, kinds):
        kind = TubeKind(request.tube.kind)
        merged = tube_options(known, kind, profile)
        for path, text in violations(
            request.tube.name, kind, merged, needs_capacity=profile.needs_capacity
        ):
            wrong.add(f"tube.options.{path}", text)
    wrong.raise_if_any()


def _check_driver(wrong: Violations, tube: tube_service_pb2.Tube) -> None:
    """Check that a tube names a driver if it is of the kind that has one."""
    if tube.kind == tube_service_pb2.Tube.CUSTOM:
        wrong.check_name("tube.driver", tube.driver)
        wrong.check_not_negative("tube.driver_version", tube.driver_version)
        return
    for field in ("driver", "driver_version"):
        if getattr(tube, field):
            wrong.add(f"tube.{field}", "given for a tube that is not of kind CUSTOM")


def check_update_tube(
    request: tube_service_pb2.UpdateTubeRequest,
    faults_of: Callable[[UpdateTube], Iterable[tuple[str, str]]],
) -> None:
    """Refuse an update that names no option, or one that does not exist.

    Args:
        request: the update.
        faults_of: returns what the tube itself finds wrong. It is asked when the update is
            refused anyway, so that all is told at once; otherwise that is told when it is applied.
    """
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    wrong.check_tube("name", request.name)
    paths = request.update_mask.paths
    if not paths:
        wrong.add("update_mask", "names no option")
    for place, path in enumerate(paths):
        if path not in OPTION_NAMES:
            wrong.add(f"update_mask.paths[{place}]", f"there is no option {path[:64]!r}")
    for field, _ in request.options.ListFields():
        if field.name not in paths:
            wrong.add(f"options.{field.name}", "has a value, but update_mask does not name it")
    known = tube_service_pb2.UpdateTubeRequest(name=request.name)
    known.options.CopyFrom(_known_choices(wrong, "options", request.options))
    if wrong.is_any:
        known.update_mask.paths.extend(path for path in paths if path in OPTION_NAMES)
        for path, text in faults_of(update_tube(known, b"", 0)):
            wrong.add(path, text)
    wrong.raise_if_any()


def _known_choices(wrong: Violations, path: str, options: _Options) -> _Options:
    """Check choices and names; return the options without the choices that nobody knows."""
    known = _Options()
    known.CopyFrom(options)
    for name, choices in _ENUMS.items():
        choice = getattr(options, name)
        if not wrong.check_choice(f"{path}.{name}", choice, choices):
            setattr(known, name, 0)
    if options.dead_letter_tube:
        wrong.check_tube(f"{path}.dead_letter_tube", options.dead_letter_tube)
    if options.HasField("retry"):
        known.retry.CopyFrom(known_retry(wrong, f"{path}.retry", options.retry))
    return known


def check_tube_name(name: str, request_id: str = "") -> None:
    """Refuse a malformed name or request_id."""
    wrong = Violations()
    wrong.check_request_id(request_id)
    wrong.check_tube("name", name)
    wrong.raise_if_any()


def check_page(request: PageRequest, field: str = "", names: Sequence[str] = ()) -> None:
    """Refuse a read of a page that breaks a limit.

    Args:
        request: the read.
        field: the field with names, or patterns of names, if it has one.
        names: these.
    """
    wrong = Violations()
    wrong.check_count(field, names, limits.NAMES_MAX)
    for place, name in enumerate(names):
        wrong.check_pattern(f"{field}[{place}]", name)
    wrong.check_page(request.page_size, request.page_token)
    wrong.check_consistency(request.consistency)
    wrong.raise_if_any()


def check_open_session(request: session_service_pb2.OpenSessionRequest) -> None:
    """Refuse a session that breaks a limit."""
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    wrong.check_text("name", request.name, limits.NAME_BYTES_MAX)
    if request.ttr_ms:
        low, high = limits.SESSION_TTR_MIN_MS, limits.SESSION_TTR_MAX_MS
        wrong.check_range("ttr_ms", request.ttr_ms, low, high)
    wrong.raise_if_any()


def check_keep_sessions(request: session_service_pb2.KeepSessionsRequest) -> None:
    """Refuse malformed session ids."""
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    wrong.check_nonempty("session_ids", request.session_ids, limits.SESSIONS_PER_KEEP_MAX)
    for place, session_id in enumerate(request.session_ids):
        wrong.check_session_id(f"session_ids[{place}]", session_id)
    wrong.raise_if_any()


def check_close_session(request: session_service_pb2.CloseSessionRequest) -> None:
    """Refuse a malformed session id."""
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    wrong.check_session_id("session_id", request.session_id)
    wrong.raise_if_any()
