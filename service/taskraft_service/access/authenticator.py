"""Find out who calls, before anything of the request is parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeAlias

import grpc.aio

from taskraft_service.access.caller import ANONYMOUS, AuthenticatedCaller, Caller, NodeCaller
from taskraft_service.access.denial import Unauthenticated
from taskraft_service.access.reloaded_principals import ReloadedPrincipals

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]

AUTHORIZATION_KEY: Final = "authorization"
PRINCIPAL_KEY: Final = "x-taskraft-principal"
"""Who made a call that a node passes on. Believed on the port of the peers only."""
_SCHEME: Final = "bearer "
_CREDENTIALS_NEEDED: Final = "a token or a certificate of a known principal is needed"


class Authenticator(Protocol):
    """Lets callers in."""

    def admit(self, context: Context) -> Caller:
        """Return who makes a call.

        Raises:
            NotKnown: that cannot be told.
        """


class OpenAuthenticator:
    """Lets everybody in: a node without rights."""

    def admit(self, context: Context) -> Caller:
        """See ``Authenticator``."""
        del context
        return ANONYMOUS


OPEN_AUTHENTICATOR: Final = OpenAuthenticator()


class ClientAuthenticator:
    """The port for clients: a token decides, else the certificate of the connection."""

    def __init__(self, current: ReloadedPrincipals) -> None:
        self._current = current

    def admit(self, context: Context) -> Caller:
        """See ``Authenticator``."""
        principals = self._current.principals
        text = metadata_of(context, AUTHORIZATION_KEY)
        if text:
            if text[: len(_SCHEME)].lower() != _SCHEME:
                raise Unauthenticated("the authorization is not a bearer token")
            found = principals.of_token(text[len(_SCHEME) :].strip())
        else:
            found = principals.of_certificate(certificate_names(context))
        if found is None:
            raise Unauthenticated(_CREDENTIALS_NEEDED)
        principal, credential = found
        return AuthenticatedCaller(principal.name, credential, self._current)


class PeerAuthenticator:
    """The port of the peers: a node says for whom it passes a call on, or speaks for itself.

    Args:
        current: the principals in force; None: this node tells nobody apart.
        node_of: returns which node of the cluster has made a connection.
        is_member: tells whether a node is a member; others may only ask to become one.
    """

    def __init__(
        self,
        current: ReloadedPrincipals | None,
        node_of: Callable[[Context], str],
        is_member: Callable[[str], bool],
    ) -> None:
        self._current = current
        self._node_of = node_of
        self._is_member = is_member

    def admit(self, context: Context) -> Caller:
        """See ``Authenticator``."""
        node = self._node_of(context)
        if not self._is_member(node):
            return NodeCaller(node)
        name = metadata_of(context, PRINCIPAL_KEY)
        if name.startswith(NodeCaller.PREFIX):
            return NodeCaller(name.removeprefix(NodeCaller.PREFIX))
        if self._current is None:
            return ANONYMOUS
        if not name:
            return NodeCaller(node)
        if self._current.principals.principal(name) is None:
            raise Unauthenticated(f'the leader knows no principal "{name}"')
        return AuthenticatedCaller(name, "", self._current)


def metadata_of(context: Context, key: str) -> str:
    """Return a text of a call's metadata; empty if there is none, or more than one."""
    found = [text for name, text in context.invocation_metadata() or () if name == key]
    return found[0] if len(found) == 1 and isinstance(found[0], str) else ""


def certificate_names(context: Context) -> Iterable[str]:
    """Return the names in the certificate of a connection; the common name if it has no others."""
    shown = context.auth_context()
    names = shown.get("x509_subject_alternative_name") or shown.get("x509_common_name") or ()
    return [name.decode(errors="replace") for name in names]
