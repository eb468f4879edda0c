"""Say why a call is not let in."""

from __future__ import annotations


class Unauthenticated(Exception):
    """There were no credentials, or none that are valid; nothing of the request was looked at."""


class PermissionDenied(Exception):
    """The caller may not do this.

    Attributes:
        principal: who calls.
        verb: what it would need to be allowed.
        name: on which tube, group or schedule; "*" stands for all, empty for any.
    """

    def __init__(self, principal: str, verb: str, name: str) -> None:
        what = {"*": "everywhere", "": "anywhere"}.get(name, f'on "{name}"')
        super().__init__(f'"{principal}" may not {verb} {what}')
        self.principal = principal
        self.verb = verb
        self.name = name
