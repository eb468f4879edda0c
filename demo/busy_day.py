"""Fill a development cluster with a busy day of work, and keep the work going (`make console`).

The day has tubes of several kinds, workers that fail for five causes, a dead-letter tube, tasks
that no worker takes, a paused tube, a workflow, and schedules. Every name and number is invented.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft import AsyncClient, Retry, errors

if TYPE_CHECKING:
    from taskraft import AsyncTakenTask, Json

CITIES: Final = ("Vienna", "Oslo", "Lisbon", "Kyiv", "Turin", "Gdansk")
FAILURES: Final = (
    ("TimeoutError", "read timed out after {seconds} s from 10.0.{host}.{seconds}"),
    ("ValueError", "not an address: 'user{number}@'"),
    ("ConnectionError", "connection to smtp-{host}.example closed, id {number:08x}"),
    ("KeyError", "order {number} has no line {host}"),
    ("QuotaExceeded", "tenant-{host} may send {seconds} mails a minute"),
)
FAILURE_WEIGHTS: Final = (6, 3, 2, 1, 1)
TENANTS: Final = (8, 4, 2, 1, 1)
"""Shares of the sub-queues in the tube of newsletters."""


class InvoiceRefused(Exception):
    """The invented reason of a failure."""


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """The work of one tube."""

    tube: str
    types: tuple[str, ...]
    backlog: int
    """Number of tasks that are put at the beginning."""
    per_second: float
    """Number of tasks that are put each second from then on."""
    workers: int
    run_seconds: float
    """Mean time of one attempt."""
    failing: float
    """Part of the attempts that fail, 0 to 1."""


PLANS: Final = (
    WorkPlan("billing", ("invoice", "credit"), 1_800, 14, 4, 0.2, 0.06),
    WorkPlan("mail", ("welcome", "receipt", "reminder"), 900, 20, 3, 0.1, 0.03),
    WorkPlan("mail.bulk", ("newsletter",), 3_500, 6, 2, 0.15, 0.02),
    WorkPlan("webhooks", ("order.paid", "order.sent"), 300, 8, 2, 0.2, 0.35),
    WorkPlan("thumbnails", ("jpeg", "png"), 120, 10, 2, 0.1, 0.01),
    WorkPlan("search.index", ("product",), 60, 12, 2, 0.05, 0.0),
    WorkPlan("reports", ("csv", "pdf"), 420, 1, 0, 0.0, 0.0),
    WorkPlan("imports", ("orders",), 260, 1, 1, 0.1, 0.0),
)


async def define(client: AsyncClient) -> None:
    """Create the tubes, the schedules and one workflow."""
    quick = Retry(attempts_max=3, backoff="2s", backoff_max="30s")
    await client.ensure_tube("billing", ttr="60s", concurrency=64, retry=quick)
    await client.ensure_tube("mail", ttr="30s", retry=quick, dead_letter_tube="mail-dead")
    await client.ensure_tube("mail.bulk", "utubettl", ttr="30s", rate_per_second=40, retry=quick)
    await client.ensure_tube("webhooks", ttr="20s", retry=quick)
    await client.ensure_tube("mail-dead")
    await client.ensure_tube("imports", take_paused=True)
    await client.ensure_tube("thumbnails", durability="temporary")
    for name in ("search.index", "reports", "books", "cleanup"):
        await client.ensure_tube(name, on_ack="retain", retain="1h")
    cleanup = client.tube("cleanup").task({"older_than_days": 30}, type="cleanup")
    report = client.tube("reports").task({"report": "daily sales"}, type="pdf")
    for name, cron, task in (
        ("hourly-cleanup", "0 * * * *", cleanup),
        ("nightly-report", "30 2 * * *", report),
        ("every-minute", "* * * * *", cleanup),
    ):
        with suppress(errors.ScheduleExists):
            await client.schedules.create(name, cron, task, time_zone="Europe/Vienna")
    with suppress(errors.ScheduleExists):
        await client.schedules.create("old-import", "*/5 * * * *", report, paused=True)
    await _define_book(client)


async def _define_book(client: AsyncClient) -> None:
    """Put a workflow: pages are extracted, loaded after their extraction, then bound."""
    books = client.tube("books")
    bind = books.task({"step": "bind"}, type="bind")
    try:
        await client.groups.create("book-1", end_task=bind)
    except errors.GroupExists:
        return
    extracts = [
        await books.put({"step": "extract", "page": page}, type="extract", group="book-1")
        for page in range(40)
    ]
    for page, extract in enumerate(extracts):
        await books.put(
            {"step": "load", "page": page}, type="load", group="book-1", depends_on=[extract]
        )
    await client.groups.start("book-1")
    with suppress(errors.GroupExists):
        await client.groups.create("book-2", end_task=bind)
        await books.put({"step": "extract", "page": 0}, type="extract", group="book-2")


def payload_of(plan: WorkPlan, number: int, chance: random.Random) -> Json:
    """Return an invented payload for a task."""
    return {
        "id": 1_970_670_598_291_982_000 + number,
        "customer": {"name": f"customer-{chance.randrange(400)}", "city": chance.choice(CITIES)},
        "amount": round(chance.uniform(5, 900), 2),
        "lines": [{"sku": f"A-{chance.randrange(99)}", "count": chance.randint(1, 4)}],
        "kind": plan.tube,
    }


async def put_some(client: AsyncClient, plan: WorkPlan, first: int, count: int) -> None:
    """Put a number of tasks into the tube of a plan."""
    chance = random.Random(f"{plan.tube}-{first}")  # noqa: S311 - invented data
    tube = client.tube(plan.tube)
    for kind in plan.types:
        numbers = range(first, first + max(count // len(plan.types), 1))
        payloads = [payload_of(plan, number, chance) for number in numbers]
        headers = {
            "traceparent": f"00-{chance.getrandbits(128):032x}-{chance.getrandbits(64):016x}-01"
        }
        if plan.tube != "mail.bulk":
            await tube.put_many(payloads, type=kind, headers=headers)
            continue
        tenants = chance.choices(range(len(TENANTS)), weights=TENANTS, k=len(payloads))
        for tenant in sorted(set(tenants)):
            part = [payload for payload, of in zip(payloads, tenants, strict=True) if of == tenant]
            name = f"tenant-{tenant + 1}"
            await tube.put_many(part, type=kind, headers=headers, subqueue=name)


async def keep_putting(client: AsyncClient, plan: WorkPlan) -> None:
    """Put tasks at the rate of a plan, without end."""
    first = plan.backlog
    while True:
        await put_some(client, plan, first, max(round(plan.per_second * 2), 1))
        first += round(plan.per_second * 2)
        await asyncio.sleep(2)


async def work(target: str, plan: WorkPlan, number: int) -> None:
    """Take and settle the tasks of one tube, without end."""
    chance = random.Random(f"{plan.tube}-{number}")  # noqa: S311 - invented data
    name = f"{plan.tube.replace('.', '-')}-worker-{number}"
    async with (
        AsyncClient(target, name=name) as client,
        client.subscribe(plan.tube, credit=8) as tasks,
    ):
        async for task in tasks:
            await asyncio.sleep(chance.expovariate(1 / plan.run_seconds))
            with suppress(errors.LeaseStale):
                await settle(task, plan, chance)


async def settle(task: AsyncTakenTask, plan: WorkPlan, chance: random.Random) -> None:
    """Acknowledge a task, or let its attempt fail for an invented cause."""
    if chance.random() >= plan.failing:
        await task.ack()
        return
    kind, text = FAILURES[chance.choices(range(len(FAILURES)), weights=FAILURE_WEIGHTS)[0]]
    message = text.format(
        seconds=chance.choice((10, 30, 60)),
        host=chance.randrange(9),
        number=chance.randrange(10_000_000),
    )
    await task.release(reason=type(kind, (InvoiceRefused,), {})(message))


async def work_on_books(target: str) -> None:
    """Work on the workflow and the clean-up slowly; some pages are buried."""
    async with (
        AsyncClient(target, name="books-worker-1") as client,
        client.subscribe(["books", "cleanup"], credit=2) as tasks,
    ):
        async for task in tasks:
            await asyncio.sleep(2)
            if task.message.spec.type == "load" and task.json()["page"] % 9 == 8:
                await task.bury("PageMissing: the scan has no such page")
            else:
                await task.ack(result={"ok": True})


async def run_day(target: str, *, has_workers: bool = True) -> None:
    """Define the day, put the backlog, then work until cancelled."""
    async with AsyncClient(target, name="busy-day") as client, AsyncExitStack():
        await define(client)
        await asyncio.gather(*(put_some(client, plan, 0, plan.backlog) for plan in PLANS))
        print("busy day: all tubes have work; Ctrl-C ends the day", flush=True)
        if not has_workers:
            return
        async with asyncio.TaskGroup() as group:
            for plan in PLANS:
                group.create_task(keep_putting(client, plan))
                for number in range(1, plan.workers + 1):
                    group.create_task(work(target, plan, number))
            group.create_task(work_on_books(target))


def main(arguments: Sequence[str] | None = None) -> int:
    """Start a development cluster with its console, and run the day until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="make console", description="A busy day in the console.")
    parser.add_argument("--target", default="", help="use a running cluster instead of a new one")
    parser.add_argument("--port", type=int, default=7401, help="client port of the first node")
    options = parser.parse_args(arguments)
    with suppress(KeyboardInterrupt):
        if options.target:
            asyncio.run(run_day(options.target))
            return 0
        command = [sys.executable, "-m", "taskraft", "dev", "--nodes", "3"]
        command += ["--port", str(options.port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cluster:
            assert cluster.stdout is not None
            target = ""
            for line in cluster.stdout:
                print(line, end="", flush=True)
                target = (
                    line.strip().removeprefix("TASKRAFT_TARGET=") if "TARGET=" in line else target
                )
                if line.startswith("ready"):
                    break
            else:
                return 1
            try:
                asyncio.run(run_day(target))
            finally:
                cluster.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
