"""Read certificate, key and CA from files, and reload them when they are renewed."""

from __future__ import annotations

import datetime as dt
import logging
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc

from taskraft_replication.errors import ReplicationError
from taskraft_replication.tls.private_files import exposure_of
from taskraft_replication.tls.watched_files import WatchedFiles

_log = logging.getLogger(__name__)


class TlsUnusable(ReplicationError):
    """A certificate, key or CA cannot be used; the text names the file and the reason."""


@dataclass(slots=True, frozen=True)
class TlsFiles:
    """Paths of the PEM files; ``authority`` is the CA of accepted clients, or None."""

    certificate: Path
    key: Path
    authority: Path | None = None

    def paths(self) -> tuple[Path, ...]:
        """Return the paths of all configured files."""
        named = (self.certificate, self.key, self.authority)
        return tuple(path for path in named if path is not None)


@dataclass(slots=True, frozen=True)
class Tls:
    """Content of the files: chain, key and CA as PEM; names and expiry of the certificate."""

    chain: bytes
    key: bytes
    authority: bytes | None
    dns_names: tuple[str, ...]
    expires_at: dt.datetime


Demand = Callable[[Tls], None]
"""Raises TlsUnusable unless a certificate meets the requirements."""


def _demand_nothing(_tls: Tls) -> None:
    pass


def read_tls(files: TlsFiles, now: dt.datetime) -> Tls:
    """Read the files and check that the certificate, the key and the CA match.

    Raises:
        TlsUnusable: a file is missing or malformed, the key belongs to another certificate, or the
            certificate has expired.
    """
    # A node without certificates starts faster without the library, whose import takes 50 ms.
    from taskraft_replication.tls.certificates import (  # noqa: PLC0415 - for a fast start
        check_key,
        dns_names,
        first_certificate,
    )

    chain, key = _read(files.certificate), _read(files.key)
    authority = None if files.authority is None else _read(files.authority)
    certificate = first_certificate(files.certificate, chain)
    if authority is not None and files.authority is not None:
        first_certificate(files.authority, authority)
    check_key(files, key, certificate)
    expires_at = certificate.not_valid_after_utc
    if expires_at <= now:
        raise TlsUnusable(f"{files.certificate} expired at {expires_at:%Y-%m-%d %H:%M} UTC")
    return Tls(chain, key, authority, dns_names(certificate), expires_at)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsUnusable(f"{path}: {error.strerror}") from error


def utc_now() -> dt.datetime:
    """Return the current time in UTC."""
    return dt.datetime.now(dt.UTC)


class CurrentTls:
    """The current content of the files; read by gRPC's threads, reloaded by one thread.

    Args:
        files: the paths.
        demand: requirements for the certificate, checked at the start and at each reload.
        now: returns the current time.

    Raises:
        TlsUnusable: the files cannot be used at the start, or other users can read the key.
    """

    def __init__(
        self,
        files: TlsFiles,
        demand: Demand = _demand_nothing,
        now: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        self._files = files
        self._demand = demand
        self._now = now
        self._watched = WatchedFiles(files.paths())
        self._lock = threading.Lock()
        self._context: tuple[Tls, ssl.SSLContext] | None = None
        """The TLS context, with the content from which it was built."""
        self.tls = self._read()
        if exposure := exposure_of(files.key):
            raise TlsUnusable(exposure)
        self._listeners: list[Callable[[Tls], None]] = []

    def listen(self, renewed: Callable[[Tls], None]) -> None:
        """Call a function with the new content after each renewal."""
        self._listeners.append(renewed)

    def _read(self) -> Tls:
        tls = read_tls(self._files, self._now())
        self._demand(tls)
        return tls

    def refresh(self) -> bool:
        """Reload files that have changed; return whether new content is in use.

        Unusable content is ignored, because a certificate and its key are rarely replaced at the
        same instant.
        """
        if not self._watched.changed():
            return False
        try:
            tls = self._read()
        except TlsUnusable as error:
            _log.error("keeping the current certificate: %s", error)
            return False
        with self._lock:
            self.tls = tls
        if exposure := exposure_of(self._files.key):
            _log.error("the next start refuses the private key: %s", exposure)
        for renewed in self._listeners:
            renewed(tls)
        _log.info("using a renewed certificate, valid until %s", tls.expires_at)
        return True

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that reload changed files; with a CA, clients need a certificate.

        Open connections keep their credentials; each new connection uses the current credentials.
        """
        served: list[Tls] = [self.tls]

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            with self._lock:
                tls = self.tls
            if tls is served[0]:
                return None
            served[0] = tls
            return _configuration(tls)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(served[0]),
            # None means "unchanged", which the type stub does not declare.
            cast("Callable[[], grpc.ServerCertificateConfiguration]", renewed),
            require_client_authentication=self._files.authority is not None,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the current credentials for one channel."""
        tls = self.tls
        return grpc.ssl_channel_credentials(tls.authority, tls.key, tls.chain)

    def server_context(self) -> ssl.SSLContext:
        """Return a TLS context with the current certificate; with a CA, clients need one too.

        Raises:
            OSError: the files have changed and do not match each other at this moment.
        """
        tls = self.tls
        if self._context is None or self._context[0] is not tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            # The ssl module reads certificates from files only.
            context.load_cert_chain(self._files.certificate, self._files.key)
            if tls.authority is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(cadata=tls.authority.decode())
            self._context = tls, context
        return self._context[1]

    def client_context(self) -> ssl.SSLContext:
        """Return a TLS context with the current certificate that checks host names.

        Raises:
            OSError: the files have changed and do not match each other at this moment.
        """
        assert self.tls.authority is not None, "a CA is configured"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self._files.certificate, self._files.key)
        context.load_verify_locations(cadata=self.tls.authority.decode())
        return context


def _configuration(tls: Tls) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(tls.key, tls.chain)], tls.authority)
