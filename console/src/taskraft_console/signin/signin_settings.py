"""Read the sign-in file: the method of sign-in, and the credentials of each person."""

from __future__ import annotations

import ipaddress
import tomllib
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class SignInFileInvalid(ValueError):
    """The sign-in file is unusable; the text names the reason in one line."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _https(text: str) -> str:
    """Return an address without a slash at its end.

    Raises:
        ValueError: the address is neither https nor http on loopback.
    """
    parts = urlsplit(text)
    is_safe = parts.scheme == "https" or (
        parts.scheme == "http" and parts.hostname in LOOPBACK_NAMES
    )
    if not is_safe or not parts.hostname:
        raise ValueError(f"{text!r} is not an https address; http is allowed on loopback only")
    return text.rstrip("/")


def _network(text: str) -> str:
    ipaddress.ip_network(text)
    return text


HttpsAddress = Annotated[str, AfterValidator(_https)]
Network = Annotated[str, AfterValidator(_network)]


class OidcSettings(_Section):
    """The OpenID provider, and the claims that name a person and the groups."""

    issuer: HttpsAddress
    client_id: str = Field(min_length=1)
    client_secret_file: Path | None = None
    """File with only the secret; None: a public client, which PKCE protects."""
    scopes: tuple[str, ...] = ("openid", "email")
    user_claim: str = "email"
    groups_claim: str = "groups"

    @model_validator(mode="after")
    def _asks_for_an_identity(self) -> Self:
        if "openid" not in self.scopes:
            raise ValueError("scopes must contain 'openid'")
        return self


class ProxySettings(_Section):
    """The proxy that authenticates people, and the headers in which it names them."""

    trusted_proxies: tuple[Network, ...] = Field(min_length=1)
    """Addresses and networks of the proxies; the headers of all others are refused."""
    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"

    def trusts(self, address: str) -> bool:
        """Return whether an address is that of a trusted proxy."""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in ipaddress.ip_network(network) for network in self.trusted_proxies)


class PersonRule(_Section):
    """The credentials of one person, or of all people of a group."""

    user: str = ""
    group: str = ""
    token_file: Path

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if bool(self.user) == bool(self.group):
            raise ValueError("a rule names either a user or a group")
        return self


class SignInSettings(_Section):
    """The settings of sign-in.

    With `token`, a person enters a token of the cluster. With `oidc` and `proxy`, the first of the
    rules that fits a person names the token; a person without a rule has no access.
    """

    method: Literal["token", "oidc", "proxy"]
    public_url: HttpsAddress
    """Address of the console as browsers see it, without the base path."""
    oidc: OidcSettings | None = None
    proxy: ProxySettings | None = None
    people: tuple[PersonRule, ...] = ()

    @model_validator(mode="after")
    def _has_its_section(self) -> Self:
        for method in ("oidc", "proxy"):
            is_given = getattr(self, method) is not None
            if is_given != (self.method == method):
                raise ValueError(f"section [{method}] belongs to method {method!r}, and only to it")
        if (self.method == "token") == bool(self.people):
            raise ValueError("[[people]] belongs to the methods 'oidc' and 'proxy'")
        return self

    def token_file(self, user: str, groups: frozenset[str]) -> Path | None:
        """Return the token file of a person; None: the person has no access."""
        for rule in self.people:
            if (rule.user and rule.user == user) or (rule.group and rule.group in groups):
                return rule.token_file
        return None


def read_signin(path: Path) -> SignInSettings:
    """Return the settings of a sign-in file; its paths are relative to its folder.

    Raises:
        SignInFileInvalid: the file cannot be read, or a value is wrong.
    """
    try:
        settings = SignInSettings.model_validate(tomllib.loads(path.read_text()))
        rules = tuple(
            rule.model_copy(update={"token_file": path.parent / rule.token_file})
            for rule in settings.people
        )
        oidc = settings.oidc
        if oidc is not None and oidc.client_secret_file is not None:
            secret = path.parent / oidc.client_secret_file
            oidc = oidc.model_copy(update={"client_secret_file": secret})
        for needed in [*(rule.token_file for rule in rules), oidc and oidc.client_secret_file]:
            if needed and not needed.read_text().strip():
                raise SignInFileInvalid(f"{path}: {needed} is empty")
    except OSError as error:
        raise SignInFileInvalid(f"{error.filename}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "file"
        raise SignInFileInvalid(f"{path}: {place}: {first['msg']}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SignInFileInvalid(f"{path}: {error}") from error
    return settings.model_copy(update={"people": rules, "oidc": oidc})
