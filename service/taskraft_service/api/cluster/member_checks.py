"""Check the fields of requests that change the members."""

from __future__ import annotations

import re
from typing import Final

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.config.addresses import ConfigInvalid, port_of
from taskraft_service.limits import NAME_BYTES_MAX

_NAME: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{NAME_BYTES_MAX}}}")
_DIRECTORY: Final = re.compile(r"[0-9a-f]{0,64}")


def check_add_member(request: pb.AddMemberRequest, cluster_id: str) -> None:
    """Check a request to add a member.

    Raises:
        CallRefused: INVALID_FIELD with all violations.
    """
    violations = Violations()
    if not _NAME.fullmatch(request.name):
        violations.add("name", f"must be 1 to {NAME_BYTES_MAX} characters of A-Z a-z 0-9 _ . -")
    for path, address in (
        ("peer_address", request.peer_address),
        ("address", request.address),
    ):
        try:
            port_of(address)
        except ConfigInvalid as error:
            violations.add(path, str(error))
    if not _DIRECTORY.fullmatch(request.directory_id):
        violations.add("directory_id", "not the id of a data directory")
    if request.cluster_id not in ("", cluster_id):
        violations.add("cluster_id", f'the id of this cluster is "{cluster_id}"')
    if request.replaces_member and not request.directory_id:
        violations.add("directory_id", "needed with replaces_member")
    if request.replaced_id < 0:
        violations.add("replaced_id", "must not be negative")
    if request.replaced_id and not request.replaces_member:
        violations.add("replaced_id", "needs replaces_member")
    violations.check_request_id(request.request_id, request.client_id)
    violations.raise_if_any()


def check_remove_member(request: pb.RemoveMemberRequest) -> None:
    """Check a request to remove a member.

    Raises:
        CallRefused: INVALID_FIELD with all violations.
    """
    violations = Violations()
    if not _DIRECTORY.fullmatch(request.directory_id):
        violations.add("directory_id", "not the id of a data directory")
    violations.check_request_id(request.request_id, request.client_id)
    violations.raise_if_any()


def check_request_id(request_id: str, client_id: str) -> None:
    """Check the key of a request.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_request_id(request_id, client_id)
    violations.raise_if_any()
