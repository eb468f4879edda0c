"""Decide whether a request may change an object that another principal has made."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.values import value


@value
class Ownership:
    """The principal of a request, as the owner of the objects that the request makes.

    An object without an owner was made without access control; the rights on its name suffice.

    Attributes:
        principal: the principal; empty: access control is off.
        changes_all: the request may also change the objects of other owners.
    """

    principal: str = ""
    changes_all: bool = True

    def refusal_to_change(self, owner: str, what: str) -> Refusal | None:
        """Return why the request may not change an object of ``owner``, or None.

        Args:
            owner: the owner of the object; empty: it has none.
            what: the object, for the text of the refusal.
        """
        if self.changes_all or owner in ("", self.principal):
            return None
        return Refusal(
            Reason.NOT_ALLOWED,
            f"{what} belongs to another principal; only its owner and admins may change it",
            {"principal": self.principal},
        )


EVERYBODY: Final = Ownership()
"""The ownership of a request without access control."""


def ownership_of_later(owner: str) -> Ownership:
    """Return the ownership of a put that a group or a schedule makes for its owner.

    Such a put changes no objects of other owners, also if its owner is an admin.
    """
    return Ownership(owner, changes_all=False) if owner else EVERYBODY
