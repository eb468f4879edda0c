"""Read the file that names the principals, their credentials and their grants.

TOML, or JSON of the same shape::

    [principals.billing]
    tokens = ["sha256:5e88..."]        # of the token, which stands nowhere on the server
    certificates = ["billing.example"] # names in a client's certificate
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
    """The file cannot be used; the text says why, in one line."""


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _GrantShape(_Shape):
    role: Literal["admin", "producer", "consumer", "reader"]
    tubes: Annotated[tuple[Pattern, ...], Field(min_length=1)]


class _PrincipalShape(_Shape):
    tokens: tuple[Digest, ...] = ()
    certificates: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    grants: tuple[_GrantShape, ...] = ()


class _FileShape(_Shape):
    principals: Annotated[dict[str, _PrincipalShape], Field(min_length=1)]


def digest_of(token: str) -> str:
    """Return how a token is named in the file.

    One round of SHA-256 is enough for a token with 256 random bits: there is no list of likely ones
    to try. Passwords are not tokens.
    """
    return DIGEST_PREFIX + hashlib.sha256(token.encode()).hexdigest()


@dataclass(slots=True, frozen=True)
class Principal:
    """Somebody who may call; ``credentials`` are digests of tokens and names in certificates."""

    name: str
    rights: Permissions
    credentials: frozenset[str]


class Principals:
    """The principals of one version of the file. Unchangeable."""

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._principals = principals
        # Found by a part of the digest and compared in whole: what the time of a look-up tells is
        # about a digest, from which nobody gets to the token.
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

    def principal(self, name: str) -> Principal | None:
        """Return a principal by its name."""
        return self._principals.get(name)

    def of_token(self, token: str) -> tuple[Principal, str] | None:
        """Return who has a token, and the credential that it is."""
        digest = digest_of(token)
        known, principal = self._by_digest.get(_lookup(digest), ("", None))
        if principal is None or not hmac.compare_digest(known, digest):
            return None
        return principal, known

    def of_certificate(self, names: Iterable[str]) -> tuple[Principal, str] | None:
        """Return who has a certificate with these names; None also where they tell of two."""
        found = {
            principal.name: (principal, name)
            for name in names
            if (principal := self._by_certificate.get(name)) is not None
        }
        return next(iter(found.values())) if len(found) == 1 else None


def _lookup(digest: str) -> str:
    return digest[len(DIGEST_PREFIX) :][:_LOOKUP_CHARACTERS]


def read_principals(path: Path) -> Principals:
    """Read the file.

    Raises:
        AccessInvalid: it is not there, malformed, or gives two principals the same credential.
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
        # Not the input: it may be a token that somebody wrote where its digest belongs.
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
                f'"{name}" is no name of a principal (1 to 64 of A-Z a-z 0-9 _ . @ -)'
            )
        credentials = frozenset((*each.tokens, *each.certificates))
        _check_holders(holders, name, credentials)
        rights = Permissions([Grant(grant.role, grant.tubes) for grant in each.grants])
        principals[name] = Principal(name, rights, credentials)
    return principals


def _check_holders(holders: dict[str, str], name: str, credentials: Iterable[str]) -> None:
    """Make sure that a credential tells of one principal only."""
    known: Sequence[str] = sorted(credentials)
    for credential in known:
        is_digest = credential.startswith(DIGEST_PREFIX)
        key = _lookup(credential) if is_digest else credential
        other = holders.setdefault(key, name)
        if other != name:
            kind = "token" if is_digest else "certificate"
            raise AccessFileInvalid(f'"{other}" and "{name}" have the same {kind}')
