"""Cut lists into pages that do not shift: a page token names the key after which the page begins.

A token is opaque to clients. The token also holds a fingerprint of its list. A token that is used
with another list, filter or order is refused.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Final, TypeVar

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.limits import LIST_BYTES_MAX

T = TypeVar("T")

TOKEN_MALFORMED: Final = "not a token from an earlier answer of this list"  # noqa: S105 - no password
_FINGERPRINT_BYTES: Final = 6
_VERSION: Final = b"\x01"
"""First byte of the content of a page token: the format of the other bytes."""


def list_fingerprint(*parts: str) -> str:
    """Return a short hash that identifies a list."""
    digest = blake2b(digest_size=_FINGERPRINT_BYTES)
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def token_after(key: str) -> str:
    """Return the token of the page after ``key``."""
    return base64.urlsafe_b64encode(_VERSION + key.encode()).decode()


def key_of_token(token: str) -> str:
    """Return the key after which a page begins; empty for the first page.

    Raises:
        CallRefused: the token did not come from this service.
    """
    key = _key_or_none(token)
    if key is None:
        raise page_token_refused()
    return key


def is_page_token(token: str) -> bool:
    """Return whether a text has the form of a page token."""
    return _key_or_none(token) is not None


def _key_or_none(token: str) -> str | None:
    if not token:
        return ""
    try:
        content = base64.b64decode(token, altchars=b"-_", validate=True)
        return content[1:].decode() if content[:1] == _VERSION else None
    except (binascii.Error, ValueError):
        return None


def page_token_refused() -> CallRefused:
    """Return the refusal of a page token that no answer of this list contained."""
    return CallRefused(
        error_pb2.Error.INVALID_FIELD,
        f"page_token: {TOKEN_MALFORMED}",
        {"field": "page_token"},
        (("page_token", TOKEN_MALFORMED),),
    )


def page_of(
    ordered: Sequence[T],
    key: Callable[[T], str],
    size: int,
    token: str,
    fingerprint: str,
    bytes_of: Callable[[T], int] | None = None,
) -> tuple[Sequence[T], str]:
    """Return a page of a list that is ordered by key, and the token of the next page.

    Elements with equal keys are on one page, so a page may be longer than ``size``. The token is
    empty on the last page. With ``bytes_of``, the size of the large content of an element, a page
    also ends after ``LIST_BYTES_MAX``.

    Raises:
        CallRefused: the token is malformed, or its fingerprint is not ``fingerprint``.
    """
    start = 0
    if token:
        own_fingerprint, _, last = key_of_token(token).partition(":")
        if own_fingerprint != fingerprint:
            raise page_token_refused()
        start = bisect_right(ordered, last, key=key)
    end = min(start + size, len(ordered))
    if bytes_of is not None:
        sizes = accumulate(map(bytes_of, ordered[start:end]))
        end = min(start + bisect_right(list(sizes), LIST_BYTES_MAX) + 1, end)
    while start < end < len(ordered) and key(ordered[end]) == key(ordered[end - 1]):
        end += 1
    page = ordered[start:end]
    return page, token_after(f"{fingerprint}:{key(page[-1])}") if end < len(ordered) else ""
