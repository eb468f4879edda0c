"""Define the key of a request: the data that the log stores beside the request."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.entities.ownership import EVERYBODY, Ownership
from taskraft_service.queue.values import value


@value
class RequestKey:
    """Data that the log stores about a request in addition to the request itself.

    The scope is the principal and the client_id of the caller. Two callers with different scopes
    may use the same request_id for different requests.

    Attributes:
        hash: hash of the request; it distinguishes a retry from another request with the same
            request_id. 0: the request has no request_id.
        scope: scope of the request_id, from ``request_scope``. A command keeps the request_id with
            the scope in front. Empty: neither principal nor client_id is set.
        owner: the principal, for requests that make or change objects with an owner.
    """

    hash: int = 0
    scope: str = ""
    owner: Ownership = EVERYBODY


NO_KEY: Final = RequestKey()
"""The key of a request without a request_id and without access control."""
