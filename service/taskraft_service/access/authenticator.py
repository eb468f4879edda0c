"""Authenticate the caller of a request before the request is parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote

from taskraft_service.access.caller import (
    ANONYMOUS,
    AuthenticatedCaller,
    Caller,
    NodeCaller,
    Unauthenticated,
)
from taskraft_service.access.reloaded_principals import ReloadedPrincipals

AUTHORIZATION_KEY: Final = "authorization"
PRINCIPAL_KEY: Final = "x-taskraft-principal"
"""Principal of a forwarded call. Accepted on the peer port only."""
PEER_KEY: Final = "x-taskraft-peer"
"""Address of the client of a forwarded call, for the audit log. Accepted on the peer port only."""
PERSON_KEY: Final = "x-taskraft-person"
"""Person who makes the call, percent-encoded, for the audit. Accepted from principals with
``speaks_for`` and on the peer port only."""
PERSON_CHARACTERS_MAX: Final = 128
_SCHEME: Final = "bearer "
_CREDENTIALS_NEEDED: Final = "the call needs the token or the certificate of a known principal"


Metadata: TypeAlias = Iterable[tuple[str, str | bytes]] | None
"""Metadata of a call as pairs."""


class CallContext(Protocol):
    """The metadata and the TLS peer of a call; a gRPC call context has these methods."""

    def invocation_metadata(self) -> Any:  # noqa: ANN401 - iterable of pairs; typed by no library
        """Return the metadata of the call as pairs; None if there is none."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Return the properties of the TLS peer."""

    def peer(self) -> str:
        """Return the address of the peer."""


class Authenticator(Protocol):
    """Authenticates callers."""

    def authenticate(self, context: CallContext) -> Caller:
        """Return the caller of a request.

        Raises:
            Unauthenticated: the call has no valid credentials.
        """

    def has_valid_token(self, metadata: Metadata) -> bool:
        """Return whether the metadata of a call is enough to let the call send its message."""


class OpenAuthenticator:
    """Accepts every call as anonymous: a node without authentication."""

    def authenticate(self, context: CallContext) -> Caller:
        """Return the caller of a request."""
        del context
        return ANONYMOUS

    def has_valid_token(self, metadata: Metadata) -> bool:
        """Return True, because no caller needs a token."""
        del metadata
        return True


OPEN_AUTHENTICATOR: Final = OpenAuthenticator()


class ClientAuthenticator:
    """Authenticates calls on the client port by bearer token, otherwise by client certificate."""

    def __init__(self, current: ReloadedPrincipals) -> None:
        self._current = current

    def authenticate(self, context: CallContext) -> Caller:
        """Return the caller of a request."""
        principals = self._current.principals
        text = metadata_of(context, AUTHORIZATION_KEY)
        if text:
            if text[: len(_SCHEME)].lower() != _SCHEME:
                raise Unauthenticated("the authorization metadata is not a bearer token")
            found = principals.of_token(_token_in(text))
        else:
            found = principals.of_certificate(certificate_names(context))
        if found is None:
            raise Unauthenticated(_CREDENTIALS_NEEDED)
        principal, credential = found
        person = person_of(context) if principal.speaks_for else ""
        return AuthenticatedCaller(
            principal.name, credential, self._current, context.peer(), person
        )

    def has_valid_token(self, metadata: Metadata) -> bool:
        """Return whether the token is valid; False if the caller has only a certificate."""
        text = value_in(metadata, AUTHORIZATION_KEY)
        is_token = text[: len(_SCHEME)].lower() == _SCHEME
        return is_token and self._current.principals.of_token(_token_in(text)) is not None


class PeerAuthenticator:
    """Authenticates calls on the peer port: a member names the principal of a forwarded call.

    Args:
        current: the principals in force; None on a node without authentication.
        node_of: returns the name of the node that opened the connection.
        is_member: returns whether a node is a member; other nodes may only request membership.
    """

    def __init__(
        self,
        current: ReloadedPrincipals | None,
        node_of: Callable[[CallContext], str],
        is_member: Callable[[str], bool],
    ) -> None:
        self._current = current
        self._node_of = node_of
        self._is_member = is_member

    def authenticate(self, context: CallContext) -> Caller:
        """Return the caller of a request."""
        node = self._node_of(context)
        if not self._is_member(node):
            return NodeCaller(node, context.peer())
        peer = metadata_of(context, PEER_KEY) or context.peer()
        name = metadata_of(context, PRINCIPAL_KEY)
        if name.startswith(NodeCaller.PREFIX):
            return NodeCaller(name.removeprefix(NodeCaller.PREFIX), peer)
        if self._current is None:
            return ANONYMOUS
        if not name:
            return NodeCaller(node, peer)
        if self._current.principals.principal(name) is None:
            raise Unauthenticated(f'the leader has no principal "{name}" in its access file')
        return AuthenticatedCaller(name, "", self._current, peer, person_of(context))

    def has_valid_token(self, metadata: Metadata) -> bool:
        """Return True: only nodes can connect to this port, and nodes need no token."""
        del metadata
        return True


def metadata_of(context: CallContext, key: str) -> str:
    """Return the value of a metadata key of a call; empty unless the key occurs exactly once."""
    return value_in(context.invocation_metadata(), key)


def person_of(context: CallContext) -> str:
    """Return the person who makes a call; empty: the call names no person.

    Raises:
        Unauthenticated: the metadata is not the name of one person.
    """
    found = [text for key, text in context.invocation_metadata() or () if key == PERSON_KEY]
    if not found:
        return ""
    person = unquote(found[0]) if len(found) == 1 and isinstance(found[0], str) else ""
    if not person.isprintable() or not 0 < len(person) <= PERSON_CHARACTERS_MAX:
        raise Unauthenticated(
            f"the metadata {PERSON_KEY} must name one person in 1 to {PERSON_CHARACTERS_MAX} "
            "printable characters, percent-encoded"
        )
    return person


def value_in(metadata: Metadata, key: str) -> str:
    """Return the value of a metadata key; empty unless the key occurs exactly once."""
    found = [text for name, text in metadata or () if name == key]
    return found[0] if len(found) == 1 and isinstance(found[0], str) else ""


def _token_in(text: str) -> str:
    """Return the token in the value of the authorization metadata."""
    return text[len(_SCHEME) :].strip()


def certificate_names(context: CallContext) -> Iterable[str]:
    """Return the alternative names of the client certificate, or its common name if none."""
    shown = context.auth_context()
    names = shown.get("x509_subject_alternative_name") or shown.get("x509_common_name") or ()
    return [name.decode(errors="replace") for name in names]
