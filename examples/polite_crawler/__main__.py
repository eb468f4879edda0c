"""Crawl from the given addresses: `python -m examples.polite_crawler URL`."""

from __future__ import annotations

import asyncio
import logging
import sys

from examples.polite_crawler.site import served
from examples.polite_crawler.tasks import app, fetch
from taskraft import AsyncClient

DEPTH = 3


async def main(starts: list[str]) -> None:
    """Run a worker until all pages that can be reached have been fetched."""
    async with AsyncClient() as client, app.running():
        await app.aput_many(fetch.plan(url, DEPTH) for url in starts)
        # A page puts its links together with its acknowledgement, so the tube has unfinished tasks
        # until the crawl is over.
        while True:
            found = (await client.tube(fetch.tube).stats()).tasks
            if not found.ready + found.delayed + found.taken:
                break
            await asyncio.sleep(0.5)
        print(f"{found.done + found.zombie} pages, {found.buried} not fetched")


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1:]))
    else:
        with served() as addresses:
            asyncio.run(main(addresses))
