"""Cut lists into pages that do not shift: a token says behind which element the next begins.

It holds a mark of its list too: with another list, filter or order it is refused, since the next
page would belong to neither.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused

T = TypeVar("T")

MALFORMED: Final = "not a token of an earlier answer"
_MARK_BYTES: Final = 6


def list_fingerprint(*parts: str) -> str:
    """Return what tells one list from another."""
    digest = blake2b(digest_size=_MARK_BYTES)
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def token_after(key: str) -> str:
    """Return the token of the page behind ``key``."""
    return base64.urlsafe_b64encode(key.encode()).decode()


def key_of_token(token: str) -> str:
    """Return the key behind which a page begins; empty for the first page.

    Raises:
        Refused: the token was not made by this service.
    """
    key = _key_or_none(token)
    if key is None:
        raise page_token_refused()
    return key


def is_page_token(token: str) -> bool:
    """Tell whether a text has the form of the tokens that are made here."""
    return _key_or_none(token) is not None


def _key_or_none(token: str) -> str | None:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def page_token_refused() -> CallRefused:
    """Return the refusal of a page token that no answer ever held."""
    return CallRefused(
        error_pb2.Error.INVALID_FIELD,
        f"page_token: {MALFORMED}",
        {"field": "page_token"},
        (("page_token", MALFORMED),),
    )


def page_of(
    ordered: Sequence[T], key: Callable[[T], str], size: int, token: str, mark: str
) -> tuple[Sequence[T], str]:
    """Return a page of a list that is in order of its keys, and the token of the next page.

    Elements with equal keys come on one page, which may be longer than ``size`` by that.

    Raises:
        Refused: the token is malformed, or was made for another list than that of ``mark``.
    """
    start = 0
    if token:
        own_mark, _, last = key_of_token(token).partition(":")
        if own_mark != mark:
            raise page_token_refused()
        start = bisect_right(ordered, last, key=key)
    end = min(start + size, len(ordered))
    while start < end < len(ordered) and key(ordered[end]) == key(ordered[end - 1]):
        end += 1
    page = ordered[start:end]
    return page, token_after(f"{mark}:{key(page[-1])}") if end < len(ordered) else ""
