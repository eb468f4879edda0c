"""Cut lists into pages that do not shift: a token says behind which element the next begins."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from service.api.status import Refused
from taskraft.v1 import error_pb2

T = TypeVar("T")


def token_after(key: str) -> str:
    """Return the token of the page behind ``key``."""
    return base64.urlsafe_b64encode(key.encode()).decode()


def key_of(token: str) -> str:
    """Return the key behind which a page begins; empty for the first page.

    Raises:
        Refused: the token was not made by this service.
    """
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise malformed_token() from error


def malformed_token() -> Refused:
    """Return the refusal of a page token that no answer ever held."""
    text = "not a token of an earlier answer"
    return Refused(
        error_pb2.Error.INVALID_FIELD,
        f"page_token: {text}",
        {"field": "page_token"},
        (("page_token", text),),
    )


def page_of(
    ordered: Sequence[T], key: Callable[[T], str], size: int, token: str
) -> tuple[Sequence[T], str]:
    """Return a page of a list that is in order of its keys, and the token of the next page.

    Raises:
        Refused: the token is malformed.
    """
    start = bisect_right(ordered, key_of(token), key=key) if token else 0
    page = ordered[start : start + size]
    more = start + size < len(ordered)
    return page, token_after(key(page[-1])) if more else ""
