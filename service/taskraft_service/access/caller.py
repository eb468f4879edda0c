"""Stand for who makes a call, and answer what they may do: by the principals now in force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from google.protobuf.message import Message

from taskraft.v1 import cluster_service_pb2
from taskraft_service.access import audit
from taskraft_service.access.denial import PermissionDenied, Unauthenticated
from taskraft_service.access.permission_rules import required_permissions
from taskraft_service.access.permissions import ALL_TUBES, Verb
from taskraft_service.access.reloaded_principals import ReloadedPrincipals


class Caller(Protocol):
    """Who makes a call."""

    @property
    def name(self) -> str:
        """The principal; empty where nobody is told from another."""

    @property
    def is_limited(self) -> bool:
        """Tell whether rights have to be looked at: nothing is, where there are none."""

    @property
    def version(self) -> int:
        """Number of the rights in force; streams look again when it has grown."""

    def confirm(self) -> None:
        """Make sure, during a stream, that the credentials it began with are still valid.

        Raises:
            NotKnown: they are not.
        """

    def may(self, verb: Verb, name: str) -> bool:
        """Tell whether the caller may do something to a tube, group or schedule."""

    def owns(self, owner: str) -> bool:
        """Tell whether something that ``owner`` made is the caller's."""

    def check(self, request: Message) -> Sequence[str]:
        """Let a request pass; return the names on which it needs the right to manage.

        Raises:
            NotAllowed: the caller lacks a right that it needs.
        """

    def managed(self, request: Message, names: Sequence[str]) -> None:
        """Note that a request was done which needed the right to manage."""


class AnonymousCaller:
    """Every caller of a node without rights: all may do everything."""

    name = ""
    is_limited = False
    version = 0

    def confirm(self) -> None:
        """See ``Caller``."""

    def may(self, verb: Verb, name: str) -> bool:
        """See ``Caller``."""
        del verb, name
        return True

    def owns(self, owner: str) -> bool:
        """See ``Caller``."""
        del owner
        return True

    def check(self, request: Message) -> Sequence[str]:
        """See ``Caller``."""
        del request
        return ()

    def managed(self, request: Message, names: Sequence[str]) -> None:
        """See ``Caller``."""


ANONYMOUS: Final = AnonymousCaller()


class AuthenticatedCaller:
    """One of the principals.

    Args:
        name: of the principal.
        credential: with which it came; empty where another node has seen to that.
        current: the principals in force.
    """

    is_limited = True

    def __init__(self, name: str, credential: str, current: ReloadedPrincipals) -> None:
        self.name = name
        self._credential = credential
        self._current = current

    @property
    def version(self) -> int:
        """See ``Caller``."""
        return self._current.version

    def confirm(self) -> None:
        """See ``Caller``."""
        principal = self._current.principals.principal(self.name)
        if principal is None or (
            self._credential and self._credential not in principal.credentials
        ):
            raise Unauthenticated("these credentials are not valid any more")

    def may(self, verb: Verb, name: str) -> bool:
        """See ``Caller``."""
        principal = self._current.principals.principal(self.name)
        return principal is not None and principal.rights.allow(verb, name)

    def owns(self, owner: str) -> bool:
        """See ``Caller``."""
        return owner == self.name

    def check(self, request: Message) -> Sequence[str]:
        """See ``Caller``."""
        names: list[str] = []
        for verb, name in required_permissions(request):
            if not self.may(verb, name):
                audit.denied(self.name, request, verb.value, name)
                raise PermissionDenied(self.name, verb.value, name)
            if verb is Verb.MANAGE:
                names.append(name)
        return names

    def managed(self, request: Message, names: Sequence[str]) -> None:
        """See ``Caller``."""
        audit.managed(self.name, request, names)


class NodeCaller:
    """A node of the cluster that speaks for itself: it may ask to be made a member, no more."""

    PREFIX: Final = "node/"
    """Begins its name; no principal has such a one."""
    is_limited = True
    version = 0

    def __init__(self, node: str) -> None:
        self._node = node
        self.name = self.PREFIX + node

    def confirm(self) -> None:
        """See ``Caller``."""

    def may(self, verb: Verb, name: str) -> bool:
        """See ``Caller``."""
        del verb, name
        return False

    def owns(self, owner: str) -> bool:
        """See ``Caller``."""
        return owner == self.name

    def check(self, request: Message) -> Sequence[str]:
        """See ``Caller``."""
        if (
            not isinstance(request, cluster_service_pb2.AddMemberRequest)
            or request.name != self._node
        ):
            audit.denied(self.name, request, Verb.MANAGE.value, ALL_TUBES)
            raise PermissionDenied(self.name, Verb.MANAGE.value, ALL_TUBES)
        return (ALL_TUBES,)

    def managed(self, request: Message, names: Sequence[str]) -> None:
        """See ``Caller``."""
        audit.managed(self.name, request, names)
