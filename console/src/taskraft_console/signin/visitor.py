"""Tell who visits the console, from the request."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from taskraft.credentials import CredentialsUnusable
from taskraft_console.signin.browser_sessions import BrowserSessions
from taskraft_console.signin.principal_access import PrincipalAccess, PrincipalAccesses

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from taskraft_console.console_settings import ConsoleSettings
    from taskraft_console.signin.signin_settings import ProxySettings, SignInSettings

NO_ACCESS: Final = "has no access to this console; ask its operator for a rule in the sign-in file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A visitor who may use the console."""

    person: str
    """Name of the person; empty in a console without sign-in."""
    access: PrincipalAccess
    csrf: str
    """Secret of the visitor, which each form of a change repeats."""
    session_id: str = ""
    """Id of the sign-in; empty: the sign-in is not made by this console."""


class NotSignedIn(Exception):
    """The request has no valid sign-in; the text is for the person.

    Args:
        text: the cause.
        is_refused: True: a sign-in does not help.
    """

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused


class VisitorFinder(Protocol):
    """Finds the visitor of a request."""

    def find(self, request: HTTPConnection) -> Visitor:
        """Return the visitor.

        Raises:
            NotSignedIn: the request has no valid sign-in.
        """


class FormSecrets:
    """Secrets of forms: one for each visitor, which a restart of the console changes."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, visitor: str) -> str:
        """Return the secret of a visitor."""
        return hmac.new(self._key, visitor.encode(), hashlib.sha256).hexdigest()


class OpenVisitors:
    """Everyone on loopback is the same visitor, with the credentials of the console."""

    def __init__(self, accesses: PrincipalAccesses, forms: FormSecrets) -> None:
        self._accesses = accesses
        self._csrf = forms.of("")

    def find(self, _: HTTPConnection) -> Visitor:
        """Return the visitor."""
        return Visitor(person="", access=self._accesses.of(None), csrf=self._csrf)


class ProxyVisitors:
    """A trusted proxy names the person of each request in a header."""

    def __init__(
        self,
        settings: SignInSettings,
        proxy: ProxySettings,
        accesses: PrincipalAccesses,
        forms: FormSecrets,
    ) -> None:
        self._settings = settings
        self._proxy = proxy
        self._accesses = accesses
        self._forms = forms

    def find(self, request: HTTPConnection) -> Visitor:
        """Return the visitor."""
        address = "" if request.client is None else request.client.host
        if not self._proxy.trusts(address):
            raise NotSignedIn("This console answers only through its proxy.", is_refused=True)
        named = request.headers.getlist(self._proxy.user_header)
        if len(named) != 1 or not named[0].strip():
            raise NotSignedIn("The proxy did not name a person.", is_refused=True)
        person = named[0].strip()
        groups = ",".join(request.headers.getlist(self._proxy.groups_header)).split(",")
        credential = credential_of(self._settings, person, frozenset(map(str.strip, groups)))
        return Visitor(
            person=person,
            access=_usable_access(self._accesses, credential),
            csrf=self._forms.of(person),
        )


def credential_of(settings: SignInSettings, person: str, groups: frozenset[str]) -> Path:
    """Return the token file of a person by the rules of the sign-in file.

    Raises:
        NotSignedIn: no rule fits the person.
    """
    token_file = settings.token_file(person, groups - {""})
    if token_file is None:
        raise NotSignedIn(f"{person} {NO_ACCESS}.", is_refused=True)
    return token_file


def _usable_access(accesses: PrincipalAccesses, credential: str | Path) -> PrincipalAccess:
    """Return the access of a credential.

    Raises:
        NotSignedIn: the token file cannot be read.
    """
    try:
        return accesses.of(credential)
    except CredentialsUnusable as error:
        text = "The console cannot read the token of this person."
        raise NotSignedIn(text, is_refused=True) from error


class SessionVisitors:
    """The cookie of the browser names a sign-in."""

    def __init__(
        self,
        settings: ConsoleSettings,
        sessions: BrowserSessions,
        accesses: PrincipalAccesses,
        forms: FormSecrets,
    ) -> None:
        is_https = settings.public_url.startswith("https://")
        prefix = "__Host-" if is_https and not settings.base_path else ""
        self.cookie: Final = f"{prefix}taskraft-console"
        self.path: Final = settings.base_path or "/"
        self.is_https: Final = is_https
        self._sessions = sessions
        self._accesses = accesses
        self._forms = forms

    def remember(self, answer: Response, session_id: str) -> None:
        """Set the cookie of a sign-in; an empty id deletes the cookie."""
        if session_id:
            answer.set_cookie(
                self.cookie,
                session_id,
                path=self.path,
                secure=self.is_https,
                httponly=True,
                samesite="lax",
            )
        else:
            answer.delete_cookie(
                self.cookie, path=self.path, secure=self.is_https, httponly=True, samesite="lax"
            )

    def find(self, request: HTTPConnection) -> Visitor:
        """Return the visitor."""
        session_id = request.cookies.get(self.cookie, "")
        session = self._sessions.find(session_id)
        if session is None:
            raise NotSignedIn("Your sign-in has ended." if session_id else "")
        return Visitor(
            person=session.person,
            access=_usable_access(self._accesses, session.credential),
            csrf=self._forms.of(session_id),
            session_id=session_id,
        )
