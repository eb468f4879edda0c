"""The person whom a call names: believed only of principals that speak for people."""

from types import SimpleNamespace

import pytest

from taskraft_service.access.authenticator import (
    PERSON_CHARACTERS_MAX,
    PERSON_KEY,
    ClientAuthenticator,
)
from taskraft_service.access.caller import Unauthenticated
from taskraft_service.access.principals import read_principals
from tests.service.access.secured import token_of, write_principals


class Call:
    """The context of a call with metadata."""

    def __init__(self, principal, *persons):
        bearer = ("authorization", f"Bearer {token_of(principal)}")
        self._metadata = (bearer, *((PERSON_KEY, person) for person in persons))

    def invocation_metadata(self):
        return self._metadata

    def auth_context(self):
        return {}

    def peer(self):
        return "ipv4:127.0.0.1:1"


@pytest.fixture
def authenticator(tmp_path):
    grants = {"console": [], "worker": []}
    path = write_principals(tmp_path / "access.toml", grants, speaks_for=["console"])
    return ClientAuthenticator(SimpleNamespace(principals=read_principals(path)))


@pytest.mark.parametrize(
    ("principal", "persons", "known"),
    [
        ("console", ["anna%40example.com"], "anna@example.com"),
        ("console", ["Zo%C3%AB"], "Zoë"),
        ("console", [], ""),
        ("worker", ["anna"], ""),
        ("worker", ["anna", "ben"], ""),
    ],
)
def test_a_person_is_believed_only_of_a_principal_that_speaks_for_people(
    authenticator, principal, persons, known
):
    caller = authenticator.authenticate(Call(principal, *persons))
    assert (caller.name, caller.person) == (principal, known)


@pytest.mark.parametrize(
    "persons", [["anna", "ben"], [""], ["a%0Ab"], ["a" * (PERSON_CHARACTERS_MAX + 1)], [b"anna"]]
)
def test_a_malformed_person_is_refused(authenticator, persons):
    with pytest.raises(Unauthenticated, match=PERSON_KEY):
        authenticator.authenticate(Call("console", *persons))
