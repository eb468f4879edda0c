"""Sign in with OpenID Connect: code flow with PKCE, state and nonce, by Authlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import OAuth
from joserfc.errors import JoseError

from taskraft_console.signin.visitor import NotSignedIn

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from taskraft_console.signin.signin_settings import OidcSettings

CALL_SECONDS: Final = 10.0
"""Time limit of a call to the provider."""


class OidcProvider:
    """One OpenID provider.

    Args:
        settings: address of the provider, and the client that the provider knows.
        redirect_url: address of the console to which the provider returns a person.
    """

    def __init__(self, settings: OidcSettings, redirect_url: str) -> None:
        self._settings = settings
        self._redirect_url = redirect_url
        secret = settings.client_secret_file
        self._provider = OAuth().register(
            "provider",
            client_id=settings.client_id,
            client_secret=None if secret is None else secret.read_text().strip(),
            server_metadata_url=f"{settings.issuer}/.well-known/openid-configuration",
            client_kwargs={
                "scope": " ".join(settings.scopes),
                "code_challenge_method": "S256",
                "timeout": CALL_SECONDS,
            },
        )

    async def redirect(self, request: Request, state: dict[str, Any]) -> Response:
        """Return the redirect to the provider.

        Raises:
            NotSignedIn: the provider does not answer.
        """
        request.scope["session"] = state
        try:
            answer: Response = await self._provider.authorize_redirect(request, self._redirect_url)
        except (httpx2.HTTPError, RuntimeError, ValueError) as error:
            raise NotSignedIn(f"The OpenID provider does not answer: {error}") from error
        return answer

    async def person(self, request: Request, state: dict[str, Any]) -> tuple[str, frozenset[str]]:
        """Return the person whom the provider names, with the groups of the person.

        Raises:
            NotSignedIn: the provider refused, or its answer is not for this browser and client.
        """
        request.scope["session"] = state
        try:
            token = await self._provider.authorize_access_token(
                request,
                claims_options={
                    "iss": {"essential": True, "value": await self._issuer()},
                    "aud": {"essential": True, "value": self._settings.client_id},
                },
            )
        except (AuthlibBaseError, JoseError, httpx2.HTTPError, RuntimeError, ValueError) as error:
            raise NotSignedIn(f"The sign-in failed: {error}") from error
        claims = token.get("userinfo")
        if claims is None:
            raise NotSignedIn("The sign-in failed: the OpenID provider sent no identity.")
        return self._named(claims)

    async def _issuer(self) -> str:
        """Return the issuer that the provider names, which must be the configured one.

        Raises:
            RuntimeError: the provider names another issuer.
        """
        metadata = await self._provider.load_server_metadata()
        issuer = str(metadata.get("issuer", ""))
        if issuer.rstrip("/") != self._settings.issuer:
            raise RuntimeError(f"the provider names the issuer {issuer!r}")
        return issuer

    def _named(self, claims: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
        """Return the person and the groups in the claims of an identity token.

        Raises:
            NotSignedIn: the claims name no person.
        """
        claim = self._settings.user_claim
        person = claims.get(claim)
        if not isinstance(person, str) or not person:
            raise NotSignedIn(f"The sign-in failed: the identity has no {claim!r}.")
        if claim == "email" and claims.get("email_verified") is not True:
            raise NotSignedIn(
                f"The sign-in failed: the OpenID provider has not verified the address {person}."
            )
        groups = claims.get(self._settings.groups_claim, ())
        named = groups if isinstance(groups, list) else ()
        return person, frozenset(each for each in named if isinstance(each, str))
