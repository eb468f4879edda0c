"""A small OpenID provider for tests: signs in one person at once, and checks PKCE."""

import base64
import contextlib
import hashlib
import secrets
import socket
import threading
import time
from urllib.parse import urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

CLIENT = "taskraft-console"


class OpenIdProvider:
    """The provider; tests change the claims of the next person."""

    def __init__(self, address):
        self.address = address
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
        self.signing_key = self.key
        self.claims = {}
        self._codes = {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._describe),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/keys", self._keys),
            ]
        )

    async def _describe(self, _):
        at = self.address
        return JSONResponse(
            {
                "issuer": at,
                "authorization_endpoint": f"{at}/authorize",
                "token_endpoint": f"{at}/token",
                "jwks_uri": f"{at}/keys",
                "id_token_signing_alg_values_supported": ["RS256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
        )

    async def _authorize(self, request):
        asked = request.query_params
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_hex(8)
        self._codes[code] = asked
        answer = urlencode({"code": code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{answer}", 302)

    async def _token(self, request):
        form = await request.form()
        asked = self._codes.pop(form["code"])
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked["code_challenge"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.address, "aud": asked["client_id"], "sub": "1", "iat": now}
        claims |= {"exp": now + 60, "nonce": asked["nonce"], **self.claims}
        token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.signing_key)
        return JSONResponse({"access_token": "unused", "token_type": "Bearer", "id_token": token})

    async def _keys(self, _):
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})


@contextlib.contextmanager
def running_provider():
    """Run a provider in a thread until the end of the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    provider = OpenIdProvider(f"http://127.0.0.1:{listener.getsockname()[1]}")
    server = uvicorn.Server(uvicorn.Config(provider.app, log_level="error"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield provider
    finally:
        server.should_exit = True
        thread.join()
