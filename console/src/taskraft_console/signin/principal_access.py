"""Call the cluster as the principals of the visitors: one client for each credential.

Visitors with the same credential share a client and its answers. An answer for one
principal is never shown to another principal: the service decides which data each principal may
see.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from taskraft import AsyncClient
from taskraft.credentials import PERSON_CHARACTERS_MAX
from taskraft_console.data.cluster_reads import ClusterReads
from taskraft_console.data.shared_reads import SharedReads

if TYPE_CHECKING:
    from taskraft.credentials import AccessOptions
    from taskraft_console.console_settings import ConsoleSettings
    from taskraft_console.signin.visitor import Visitor

ACCESSES_MAX: Final = 64
"""Maximum number of clients; the least recently used one is closed first."""


class PrincipalAccess:
    """A client of the cluster with one credential, and the answers that it got."""

    def __init__(
        self, client: AsyncClient, credential: str | Path | None, timeout_seconds: float
    ) -> None:
        self.client: Final = client
        self.credential: Final = credential
        self.cluster: Final = ClusterReads(client, SharedReads(), timeout_seconds)

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()


class PrincipalAccesses:
    """The clients by their credentials."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._accesses: OrderedDict[str | Path | None, PrincipalAccess] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, credential: str | Path | None) -> PrincipalAccess:
        """Return the access with a token, a token file, or (None) the console's own credentials.

        Raises:
            CredentialsUnusable: the token file cannot be read.
        """
        access = self._accesses.get(credential)
        if access is None:
            access = PrincipalAccess(
                self._client(credential), credential, self._settings.timeout_seconds
            )
            self._accesses[credential] = access
        self._accesses.move_to_end(credential)
        while len(self._accesses) > ACCESSES_MAX:
            _, unused = self._accesses.popitem(last=False)
            closing = asyncio.create_task(unused.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return access

    @asynccontextmanager
    async def acting(self, visitor: Visitor) -> AsyncIterator[AsyncClient]:
        """Yield a client for a change, which names the person for the audit.

        People whom OpenID Connect or a proxy names can share a principal. Their changes need a
        client of their own; their reads share one client and its answers.
        """
        if not isinstance(visitor.access.credential, Path):
            yield visitor.access.client
            return
        person = visitor.person[:PERSON_CHARACTERS_MAX]
        async with self._client(visitor.access.credential, person) as client:
            yield client

    def _client(self, credential: str | Path | None, person: str = "") -> AsyncClient:
        options: AccessOptions = {}
        if isinstance(credential, Path):
            options["token_file"] = credential
        elif credential is not None:
            options["token"] = credential
        if person:
            options["person"] = person
        timeout = self._settings.timeout_seconds
        return AsyncClient(
            self._settings.target, name="taskraft-console", timeout=timeout, **options
        )

    async def close(self) -> None:
        """Close all clients."""
        await asyncio.gather(*(access.close() for access in self._accesses.values()))
        await asyncio.gather(*self._closing)
