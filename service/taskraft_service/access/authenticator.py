"""Authenticate the caller of a request before the request is parsed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote

from taskraft_service.access.caller import (
    ANONYMOUS,
    WORD_OF_A_NODE,
    AuthenticatedCaller,
    Caller,
    Credential,
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
CERTIFICATE_EXPIRED: Final = "the certificate of the client has expired"
CERTIFICATES_CACHED: Final = 1_024
"""Number of client certificates whose expiry is kept."""
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
    """Authenticates calls on the client port by bearer token, otherwise by client certificate.

    Args:
        current: the principals in force.
        wall_seconds: returns the seconds since the Unix epoch.
    """

    def __init__(
        self, current: ReloadedPrincipals, wall_seconds: Callable[[], float] = time.time
    ) -> None:
        self._current = current
        self._wall_seconds = wall_seconds

    def authenticate(self, context: CallContext) -> Caller:
        """Return the caller of a request."""
        principals = self._current.principals
        text = metadata_of(context, AUTHORIZATION_KEY)
        expires_at = math.inf
        if text:
            if text[: len(_SCHEME)].lower() != _SCHEME:
                raise Unauthenticated("the authorization metadata is not a bearer token")
            found = principals.of_token(_token_in(text))
        else:
            found = principals.of_certificate(certificate_names(context))
            if found is not None:
                expires_at = certificate_expiry(context)
        if found is None:
            raise Unauthenticated(_CREDENTIALS_NEEDED)
        if expires_at <= self._wall_seconds():
            raise Unauthenticated(CERTIFICATE_EXPIRED)
        principal, credential = found
        person = person_of(context) if principal.speaks_for else ""
        proof = Credential(credential, _token_in(text), expires_at)
        return AuthenticatedCaller(principal.name, proof, self._current, context.peer(), person)

    def has_valid_token(self, metadata: Metadata) -> bool:
        """Return whether the token is valid; False if the caller has only a certificate."""
        text = value_in(metadata, AUTHORIZATION_KEY)
        is_token = text[: len(_SCHEME)].lower() == _SCHEME
        return is_token and self._current.principals.of_token(_token_in(text)) is not None


class Trust(Enum):
    """The rights of another node at the peer port."""

    NONE = "none"
    """The node is no member: it may only ask to become one."""
    TOKENS = "tokens"
    """The member has added itself: it may forward calls whose token proves the principal."""
    WORD = "word"
    """An operator has admitted the member: it may also name the principal of a certificate."""


class PeerAuthenticator:
    """Authenticates calls on the peer port, where members forward the calls of their clients.

    A token travels with its call, and this node authenticates it again. A certificate proves the
    principal only to the node that the client has called, so this node must trust the other node.

    Args:
        current: the principals in force; None on a node without authentication.
        node_of: returns the name of the node that opened the connection.
        trust_of: returns how far a node is trusted.
    """

    def __init__(
        self,
        current: ReloadedPrincipals | None,
        node_of: Callable[[CallContext], str],
        trust_of: Callable[[str], Trust],
    ) -> None:
        self._current = current
        self._node_of = node_of
        self._trust_of = trust_of

    def authenticate(self, context: CallContext) -> Caller:
        """Return the caller of a request."""
        node = self._node_of(context)
        trust = self._trust_of(node)
        if self._current is None:
            # Without an access file, every client may do everything.
            is_member = trust is not Trust.NONE
            return ANONYMOUS if is_member else NodeCaller(node, context.peer(), is_member=False)
        if trust is Trust.NONE:
            return NodeCaller(node, context.peer(), is_member=False)
        token = _token_in(metadata_of(context, AUTHORIZATION_KEY))
        name = metadata_of(context, PRINCIPAL_KEY)
        if token:
            return self._of_token(token, node, context)
        if name:
            return self._of_name(name, node, trust, context)
        return NodeCaller(node, context.peer())

    def _of_token(self, token: str, node: str, context: CallContext) -> Caller:
        assert self._current is not None
        found = self._current.principals.of_token(token)
        if found is None:
            raise Unauthenticated("the leader does not know the token of the call")
        principal, credential = found
        return AuthenticatedCaller(
            principal.name,
            Credential(credential, token),
            self._current,
            metadata_of(context, PEER_KEY),
            person_of(context) if principal.speaks_for else "",
            node,
        )

    def _of_name(self, name: str, node: str, trust: Trust, context: CallContext) -> Caller:
        assert self._current is not None
        if trust is not Trust.WORD:
            raise Unauthenticated(
                f'node "{node}" has added itself, and an operator must admit it before it may'
                f" forward calls without a token: `taskraft cluster admit {node}`"
            )
        principal = self._current.principals.principal(name)
        if principal is None:
            raise Unauthenticated(f'the leader has no principal "{name}" in its access file')
        person = person_of(context) if principal.speaks_for else ""
        peer = metadata_of(context, PEER_KEY)
        return AuthenticatedCaller(name, WORD_OF_A_NODE, self._current, peer, person, node)

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
    """Return the token in the value of the authorization metadata; empty: there is none."""
    return text[len(_SCHEME) :].strip()


def certificate_names(context: CallContext) -> Iterable[str]:
    """Return the alternative names of the client certificate, or its common name if none."""
    shown = context.auth_context()
    names = shown.get("x509_subject_alternative_name") or shown.get("x509_common_name") or ()
    return [name.decode(errors="replace") for name in names]


def certificate_expiry(context: CallContext) -> float:
    """Return when the client certificate expires, in seconds since the Unix epoch."""
    shown = context.auth_context().get("x509_pem_cert")
    return math.inf if not shown else _expiry_of(next(iter(shown)))


@lru_cache(CERTIFICATES_CACHED)
def _expiry_of(pem: bytes) -> float:
    # A node without certificates starts faster without the library, whose import takes 50 ms.
    from taskraft_replication.tls.certificates import expiry_of  # noqa: PLC0415 - for a fast start

    return expiry_of(pem)
