"""Check the fields of requests that change the members."""

from __future__ import annotations

import re
from typing import Final

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.config.addresses import ConfigInvalid, port_of
from taskraft_service.limits import NAME_BYTES_MAX
from taskraft_service.versions import LOWEST, VersionRange

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
    lowest, highest = request.lowest_cluster_version, request.highest_cluster_version
    violations.check_not_negative("lowest_cluster_version", lowest)
    violations.check_not_negative("highest_cluster_version", highest)
    if (lowest or highest) and not 0 < lowest <= highest:
        field = "highest_cluster_version"
        violations.add(field, f"{lowest} to {highest} is not a range of cluster versions")
    violations.check_request_id(request.request_id, request.client_id)
    violations.raise_if_any()


def check_spoken_versions(request: pb.AddMemberRequest, in_force: int) -> None:
    """Check that a node that joins speaks the cluster version in force.

    An operator who adds a member does not know the versions of its node, so the check follows when
    the node joins.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    if not request.directory_id:
        return
    spoken = VersionRange(LOWEST, LOWEST)
    if request.highest_cluster_version:
        lowest, highest = request.lowest_cluster_version, request.highest_cluster_version
        spoken = VersionRange(lowest, highest)
    violations = Violations()
    if in_force not in spoken:
        violations.add(
            "highest_cluster_version",
            f"the cluster is at cluster version {in_force}, and node {request.name} speaks "
            f"{spoken}; run a release that speaks cluster version {in_force}",
        )
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
