"""Read the access file: principals with their credentials and grants.

The file is TOML, or JSON of the same structure::

    [principals.billing]
    tokens = ["sha256:5e88..."]        # digest of the token; the server stores no tokens
    certificates = ["billing.example"] # names in a client's certificate
    speaks_for = false                 # true: calls may name the person who makes them
    [[principals.billing.grants]]
    role = "producer"
    tubes = ["billing.*"]
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from taskraft_service.access.permissions import Grant, Permissions

DIGEST_PREFIX: Final = "sha256:"
_LOOKUP_CHARACTERS: Final = 16
_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")

Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:*-]{1,128}$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class AccessFileInvalid(Exception):
    """The access file is unusable; the text names the reason in one line."""


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _GrantShape(_Shape):
    role: Literal["admin", "producer", "consumer", "reader"]
    tubes: Annotated[tuple[Pattern, ...], Field(min_length=1)]


class _PrincipalShape(_Shape):
    tokens: tuple[Digest, ...] = ()
    certificates: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    grants: tuple[_GrantShape, ...] = ()
    speaks_for: bool = False


class _FileShape(_Shape):
    principals: Annotated[dict[str, _PrincipalShape], Field(min_length=1)]


def digest_of(token: str) -> str:
    """Return the digest of a token, as written in the access file.

    One round of SHA-256 is enough for a token of 256 random bits, because no dictionary of likely
    tokens exists. Passwords must not be used as tokens.
    """
    return DIGEST_PREFIX + hashlib.sha256(token.encode()).hexdigest()


@dataclass(slots=True, frozen=True)
class Principal:
    """A principal; ``credentials`` are digests of tokens and names in client certificates."""

    name: str
    permissions: Permissions
    credentials: frozenset[str]
    speaks_for: bool = False
    """True: the audit believes the person whom a call of the principal names."""

    def equals(self, other: Principal) -> bool:
        """Return whether another version of the principal has the same credentials and grants."""
        grants, others = self.permissions.grants, other.permissions.grants
        return self.credentials == other.credentials and grants == others


class Principals:
    """The principals of one version of the access file.

    Immutable.
    """

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._principals = principals
        # Look up by a prefix of the digest, then compare the whole digest in constant time. The
        # duration of the lookup can leak only a digest, which does not reveal the token.
        self._by_digest: dict[str, tuple[str, Principal]] = {}
        self._by_certificate: dict[str, Principal] = {}
        for principal in principals.values():
            for credential in principal.credentials:
                if credential.startswith(DIGEST_PREFIX):
                    self._by_digest[_lookup(credential)] = (credential, principal)
                else:
                    self._by_certificate[credential] = principal

    def __len__(self) -> int:
        return len(self._principals)

    def changed_in(self, later: Principals) -> list[str]:
        """Return the principals that are gone in a later version, or have other rights there."""
        return [
            name
            for name, principal in self._principals.items()
            if (found := later.principal(name)) is None or not found.equals(principal)
        ]

    def principal(self, name: str) -> Principal | None:
        """Return the principal of a name; None if there is none."""
        return self._principals.get(name)

    def of_token(self, token: str) -> tuple[Principal, str] | None:
        """Return the principal of a token, with the digest of the token; None if there is none."""
        digest = digest_of(token)
        known, principal = self._by_digest.get(_lookup(digest), ("", None))
        if principal is None or not hmac.compare_digest(known, digest):
            return None
        return principal, known

    def of_certificate(self, names: Iterable[str]) -> tuple[Principal, str] | None:
        """Return the principal that these certificate names identify; None unless exactly one."""
        found = {
            principal.name: (principal, name)
            for name in names
            if (principal := self._by_certificate.get(name)) is not None
        }
        return next(iter(found.values())) if len(found) == 1 else None


def _lookup(digest: str) -> str:
    return digest[len(DIGEST_PREFIX) :][:_LOOKUP_CHARACTERS]


def read_principals(path: Path) -> Principals:
    """Read the access file.

    Raises:
        AccessFileInvalid: the file is missing or malformed, or two principals share a credential.
    """
    try:
        text = path.read_text()
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        shape = _FileShape.model_validate(content)
    except OSError as error:
        raise AccessFileInvalid(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        # Omit the input: it may be a token that was written in place of its digest.
        raise AccessFileInvalid(f"{path}: {place}: {first['msg']}") from None
    except ValueError as error:
        raise AccessFileInvalid(f"{path}: {error}") from error
    try:
        return Principals(_principals(shape))
    except AccessFileInvalid as error:
        raise AccessFileInvalid(f"{path}: {error}") from error


def _principals(shape: _FileShape) -> Mapping[str, Principal]:
    holders: dict[str, str] = {}
    principals: dict[str, Principal] = {}
    for name, each in shape.principals.items():
        if not _PRINCIPAL.fullmatch(name):
            raise AccessFileInvalid(
                f'"{name}" is not a valid principal name: use 1 to 64 of A-Z a-z 0-9 _ . @ -'
            )
        credentials = frozenset((*each.tokens, *each.certificates))
        _check_holders(holders, name, credentials)
        permissions = Permissions([Grant(grant.role, grant.tubes) for grant in each.grants])
        principals[name] = Principal(name, permissions, credentials, each.speaks_for)
    return principals


def _check_holders(holders: dict[str, str], name: str, credentials: Iterable[str]) -> None:
    """Check that no two principals share a credential."""
    known: Sequence[str] = sorted(credentials)
    for credential in known:
        is_digest = credential.startswith(DIGEST_PREFIX)
        key = _lookup(credential) if is_digest else credential
        other = holders.setdefault(key, name)
        if other != name:
            kind = "token" if is_digest else "certificate"
            raise AccessFileInvalid(
                f'principals "{other}" and "{name}" have the same {kind}; '
                "give each principal its own"
            )
