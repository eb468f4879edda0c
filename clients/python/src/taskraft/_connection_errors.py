"""Translate gRPC's connection errors into an error message with advice.

Each known cause has its own message. For other causes, the message contains the informative part of
gRPC's text.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from taskraft import errors

NOT_SENT: Final = ("failed to connect", "errors resolving", "DNS resolution failed")
"""Prefixes of gRPC's text when there was no connection, so that nothing was sent."""


class ConnectionErrorCause(NamedTuple):
    """A known cause of a failed connection."""

    marker: str
    """Part of gRPC's text that identifies the cause."""
    meaning: str
    """Message text after the address."""
    advice: str


_START: Final = errors.Unavailable.advice
_TLS: Final = "see docs/security.md"
CAUSES: Final = (
    ConnectionErrorCause(
        "Connection refused", "connection refused, nothing listens on this port", _START
    ),
    ConnectionErrorCause(
        "lookup", "the host name cannot be resolved", "Check the target and the name server."
    ),
    ConnectionErrorCause(
        "HTTP/2",
        "the server on this port does not speak gRPC",
        "Use the client port (default 7401), not the port for probes and metrics.",
    ),
    ConnectionErrorCause(
        "WRONG_VERSION_NUMBER",
        "this client uses TLS, but the node does not",
        "Remove ca, cert and token and unset TASKRAFT_CA, TASKRAFT_CERT and TASKRAFT_TOKEN, or "
        f"configure the node with a certificate: {_TLS}.",
    ),
    ConnectionErrorCause(
        "CERTIFICATE_VERIFY_FAILED",
        "the node's certificate is not signed by a CA that this client trusts",
        f"Set ca or TASKRAFT_CA to the CA of the cluster's client port: {_TLS}.",
    ),
    ConnectionErrorCause(
        "Hostname Verification",
        "the node's certificate does not contain this host name",
        f"Use a host name in the target that the certificate contains: {_TLS}.",
    ),
    ConnectionErrorCause(
        "CERTIFICATE_REQUIRED",
        "the node requires a client certificate",
        f"Set cert and key: {_TLS}.",
    ),
    ConnectionErrorCause(
        "last error: UNAVAILABLE",
        "the node closed the connection during the handshake",
        f"If the nodes use TLS, set ca or TASKRAFT_CA to their CA: {_TLS}.",
    ),
)
"""Known causes; the first cause with a matching marker applies."""


def connection_error(text: str, address: str) -> errors.Unavailable:
    """Return the exception for gRPC's error text; `address` may be empty."""
    is_sent = not text.startswith(NOT_SENT)
    if not is_sent:
        for cause in CAUSES:
            if cause.marker in text:
                return errors.Unavailable(
                    _at(address, cause.meaning), advice=cause.advice, is_sent=False
                )
    said = text.rpartition("last error: ")[2]
    return errors.Unavailable(_at(address, said), is_sent=is_sent)


def _at(address: str, text: str) -> str:
    return f"{address}: {text}" if address else text
