"""Say in words of this package why a node could not be reached, and what to do about it.

What gRPC tells is meant for those who know it. Known causes are told in a sentence; of others the
part that says something is passed on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from taskraft import errors

NOT_SENT: Final = ("failed to connect", "errors resolving", "DNS resolution failed")
"""So begins what gRPC tells when there was no connection: nothing has left this process."""


class ConnectionErrorCause(NamedTuple):
    """A cause that is known."""

    sign: str
    """What gRPC says."""
    meaning: str
    """What follows the address in our message."""
    advice: str


_START: Final = "Is the cluster running, and is the target right? `taskraft dev` starts one."
_TLS: Final = "see docs/security.md"
CAUSES: Final = (
    ConnectionErrorCause("Connection refused", "nothing listens there", _START),
    ConnectionErrorCause(
        "lookup", "there is no host of this name", "Check the target, or the name server."
    ),
    ConnectionErrorCause(
        "HTTP/2",
        "what listens there does not speak gRPC",
        "Name the port for clients (7401), not that for probes and metrics.",
    ),
    ConnectionErrorCause(
        "WRONG_VERSION_NUMBER",
        "the node does not speak TLS, as this client does",
        "Leave out ca, cert and token, and the variables TASKRAFT_CA and its like; or give the "
        f"node a certificate: {_TLS}.",
    ),
    ConnectionErrorCause(
        "CERTIFICATE_VERIFY_FAILED",
        "the node's certificate is not signed by an authority that this client believes in",
        f"Name the authority with ca or TASKRAFT_CA: {_TLS}.",
    ),
    ConnectionErrorCause(
        "Hostname Verification",
        "the node's certificate is for another name than this address",
        f"Use a name in the target that the certificate has: {_TLS}.",
    ),
    ConnectionErrorCause(
        "CERTIFICATE_REQUIRED",
        "the node wants a certificate of this client",
        f"Give cert and key: {_TLS}.",
    ),
    ConnectionErrorCause(
        "last error: UNAVAILABLE",
        "the connection was closed before it was ready",
        f"If the nodes speak TLS, name their authority with ca or TASKRAFT_CA: {_TLS}.",
    ),
)
"""The first whose sign is found is the one."""


def connection_error(text: str, address: str) -> errors.Unavailable:
    """Return the failure that gRPC describes with `text`; the address may be empty."""
    is_sent = not text.startswith(NOT_SENT)
    if not is_sent:
        for cause in CAUSES:
            if cause.sign in text:
                return errors.Unavailable(
                    _at(address, cause.meaning), advice=cause.advice, is_sent=False
                )
    said = text.rpartition("last error: ")[2]
    return errors.Unavailable(_at(address, said), is_sent=is_sent)


def _at(address: str, text: str) -> str:
    return f"{address}: {text}" if address else text
