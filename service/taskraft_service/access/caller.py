"""Represent the caller of a request and authorize it against the principals in force.

Denied requests, and requests that were executed with the permission to manage, go to the audit log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from google.protobuf.message import Message

from taskraft.v1 import cluster_service_pb2, tube_service_pb2
from taskraft_service.access.audit import log_denied, log_managed
from taskraft_service.access.permission_rules import OF_OPERATORS, required_permissions
from taskraft_service.access.permissions import ALL_TUBES, ANY_TUBE, Grant, Verb
from taskraft_service.access.reloaded_principals import ReloadedPrincipals


class Unauthenticated(Exception):
    """The credentials of the call are missing or invalid; the request was not parsed."""


class PermissionDenied(Exception):
    """The caller lacks a permission.

    Attributes:
        principal: the name of the caller.
        verb: the missing permission.
        name: the tube, group or schedule; "*" stands for all tubes, empty for any tube.
    """

    def __init__(self, principal: str, verb: str, name: str) -> None:
        scope = {ALL_TUBES: "on all tubes", ANY_TUBE: "on any tube"}.get(name, f'on "{name}"')
        super().__init__(f'principal "{principal}" lacks the permission to {verb} {scope}')
        self.principal = principal
        self.verb = verb
        self.name = name


class Caller(Protocol):
    """The caller of a request."""

    @property
    def name(self) -> str:
        """The name of the principal; empty without authentication."""

    @property
    def person(self) -> str:
        """The person for whom the principal speaks, for the audit; empty: not known."""

    @property
    def peer(self) -> str:
        """The address of the client, such as "ipv4:10.0.0.7:50122"; empty if it is not known."""

    @property
    def via(self) -> str:
        """The node that has forwarded the call and named the client's address; empty: none."""

    @property
    def token(self) -> str:
        """The bearer token of the call, by which another node can authenticate it; may be empty."""

    @property
    def is_node(self) -> bool:
        """Return whether the caller is a node that calls on its own behalf."""

    @property
    def is_restricted(self) -> bool:
        """Return whether permissions apply; False on a node without authentication."""

    @property
    def version(self) -> int:
        """Version of the current principals; calls authorize again when it increases."""

    @property
    def expires_at(self) -> float:
        """When the credential expires, in seconds since the Unix epoch; infinity: never."""

    def revalidate(self) -> None:
        """Check during a call that the credentials are still valid.

        Raises:
            Unauthenticated: the credentials were withdrawn.
        """

    def may(self, verb: Verb, name: str) -> bool:
        """Return whether the caller has a permission on a tube, group or schedule."""

    def owns(self, owner: str) -> bool:
        """Return whether an object with this owner belongs to the caller."""

    def grants(self) -> Sequence[Grant]:
        """Return the grants of the caller that are in force."""

    def authorize(self, request: Message) -> Sequence[str]:
        """Check all permissions of a request; return the names for which it needs MANAGE.

        Raises:
            PermissionDenied: the caller lacks a permission.
        """

    def permits(self, request: Message) -> bool:
        """Return whether ``authorize`` accepts a request that needs no permission to manage.

        This method writes nothing to the audit log.
        """

    def log_managed(self, request: Message, names: Sequence[str], index: int) -> None:
        """Write to the audit log that a request with the permission to manage was executed.

        ``index``: index of its log entry, or 0.
        """


class AnonymousCaller:
    """The caller on a node without authentication; has all permissions."""

    name = ""
    person = ""
    peer = ""
    via = ""
    token = ""
    is_node = False
    is_restricted = False
    version = 0
    expires_at = math.inf

    def revalidate(self) -> None:
        """Check during a call that the credentials are still valid."""

    def may(self, verb: Verb, name: str) -> bool:
        """Return whether the caller has a permission on a tube, group or schedule."""
        del verb, name
        return True

    def owns(self, owner: str) -> bool:
        """Return whether an object with this owner belongs to the caller."""
        del owner
        return True

    def grants(self) -> Sequence[Grant]:
        """Return the grants of the caller that are in force."""
        return (Grant("admin", (ALL_TUBES,)),)

    def authorize(self, request: Message) -> Sequence[str]:
        """Check all permissions of a request; return the names for which it needs MANAGE."""
        del request
        return ()

    def permits(self, request: Message) -> bool:
        """Return whether ``authorize`` accepts a request that needs no permission to manage."""
        del request
        return True

    def log_managed(self, request: Message, names: Sequence[str], index: int) -> None:
        """Write to the audit log that a request with the permission to manage was executed."""


ANONYMOUS: Final = AnonymousCaller()


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential with which a call has proven its principal to this node.

    Attributes:
        name: digest of the token, or name in the certificate; empty: another node names the
            principal, and nothing proves the principal to this node.
        token: the bearer token; empty: the call has none.
        expires_at: when the credential expires; see ``Caller``.
    """

    name: str = ""
    token: str = field(default="", repr=False)
    expires_at: float = math.inf


WORD_OF_A_NODE: Final = Credential()
"""No credential: another node has authenticated the caller."""


class AuthenticatedCaller:
    """A caller that authenticated as a principal.

    Args:
        name: the name of the principal.
        credential: the credential that was used.
        current: the current principals.
        peer: the address of the client.
        person: the person for whom the principal speaks; empty: not known.
        via: the node that has forwarded the call; empty: the client has called this node.
    """

    is_node = False
    is_restricted = True

    def __init__(
        self,
        name: str,
        credential: Credential,
        current: ReloadedPrincipals,
        peer: str = "",
        person: str = "",
        via: str = "",
    ) -> None:
        self.name = name
        self.expires_at = credential.expires_at
        self.person = person
        self.peer = peer
        self.token = credential.token
        self.via = via
        self._credential = credential
        self._current = current

    @property
    def version(self) -> int:
        """Version of the current principals; calls authorize again when it increases."""
        return self._current.version

    def revalidate(self) -> None:
        """Check during a call that the credentials are still valid."""
        principal = self._current.principals.principal(self.name)
        if principal is None or (
            self._credential.name and self._credential.name not in principal.credentials
        ):
            raise Unauthenticated("the credentials of this call were withdrawn")

    def may(self, verb: Verb, name: str) -> bool:
        """Return whether the caller has a permission on a tube, group or schedule."""
        principal = self._current.principals.principal(self.name)
        return principal is not None and principal.permissions.allow(verb, name)

    def owns(self, owner: str) -> bool:
        """Return whether an object with this owner belongs to the caller."""
        return owner == self.name

    def grants(self) -> Sequence[Grant]:
        """Return the grants of the caller that are in force."""
        principal = self._current.principals.principal(self.name)
        return () if principal is None else principal.permissions.grants

    def authorize(self, request: Message) -> Sequence[str]:
        """Check all permissions of a request; return the names for which it needs MANAGE."""
        names: list[str] = []
        if not self._credential.name and type(request) in OF_OPERATORS:
            # Only another node says who the caller is.
            log_denied(self, request, Verb.MANAGE.value, ALL_TUBES)
            raise PermissionDenied(self.name, Verb.MANAGE.value, ALL_TUBES)
        for verb, name in required_permissions(request):
            if not self.may(verb, name):
                log_denied(self, request, verb.value, name)
                raise PermissionDenied(self.name, verb.value, name)
            if verb is Verb.MANAGE:
                names.append(name)
        return names

    def permits(self, request: Message) -> bool:
        """Return whether ``authorize`` accepts a request that needs no permission to manage."""
        return all(
            verb is not Verb.MANAGE and self.may(verb, name)
            for verb, name in required_permissions(request)
        )

    def log_managed(self, request: Message, names: Sequence[str], index: int) -> None:
        """Write to the audit log that a request with the permission to manage was executed."""
        log_managed(self, request, names, index)


_OWN_REQUESTS: Final = (
    cluster_service_pb2.AddMemberRequest,
    cluster_service_pb2.PromoteMemberRequest,
    cluster_service_pb2.RemoveMemberRequest,
)
"""Requests that a node may send about itself."""
_SHARED_READS: Final = (tube_service_pb2.GetHistoryRequest,)
"""Requests for what every node has in its memory, or has had before it was restarted."""


class NodeCaller:
    """A node that calls on its own behalf.

    The node may only ask for its own membership. A member may also read the samples of other nodes.

    Args:
        node: name of the node.
        peer: address of the connection.
        is_member: False: the node was removed or was never a member.
    """

    PREFIX: Final = "node/"
    """Prefix of the caller's name; no principal's name contains a slash."""
    person = ""
    via = ""
    token = ""
    is_node = True
    is_restricted = True
    version = 0
    expires_at = math.inf

    def __init__(self, node: str, peer: str = "", *, is_member: bool = True) -> None:
        self._node = node
        self._is_member = is_member
        self.peer = peer
        self.name = self.PREFIX + node

    def revalidate(self) -> None:
        """Check during a call that the credentials are still valid."""

    def may(self, verb: Verb, name: str) -> bool:
        """Return whether the caller has a permission on a tube, group or schedule."""
        del verb, name
        return False

    def owns(self, owner: str) -> bool:
        """Return whether an object with this owner belongs to the caller."""
        return owner == self.name

    def grants(self) -> Sequence[Grant]:
        """Return no grants: a node may only ask for its own membership."""
        return ()

    def authorize(self, request: Message) -> Sequence[str]:
        """Check all permissions of a request; return the names for which it needs MANAGE."""
        if self._is_member and isinstance(request, _SHARED_READS):
            return ()
        if not isinstance(request, _OWN_REQUESTS) or request.name != self._node:
            log_denied(self, request, Verb.MANAGE.value, ALL_TUBES)
            raise PermissionDenied(self.name, Verb.MANAGE.value, ALL_TUBES)
        return (ALL_TUBES,)

    def permits(self, request: Message) -> bool:
        """Return whether ``authorize`` accepts a request that needs no permission to manage."""
        return self._is_member and isinstance(request, _SHARED_READS)

    def log_managed(self, request: Message, names: Sequence[str], index: int) -> None:
        """Write to the audit log that a request with the permission to manage was executed."""
        log_managed(self, request, names, index)
