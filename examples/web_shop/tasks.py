"""The tasks of the shop."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from taskraft import Retry
from taskraft.worker import App, Context, Depends

log = logging.getLogger(__name__)

app = App("web-shop")
app.tube("payments", retry=Retry(attempts_max=10, backoff="5s", backoff_max="10m"))
app.tube("mail", rate_per_second=50)


@dataclass
class Order:
    """An order of a customer."""

    id: str
    email: str
    cents: int


class CardRefused(Exception):
    """The bank refuses the card, so a further attempt is pointless."""


class Bank:
    """Stands for the client of a payment provider."""

    async def charge(self, order_id: str, cents: int) -> str:
        """Charge an amount once for each order id, and return the number of the receipt."""
        if cents > 100_000:
            raise CardRefused(f"{cents / 100:.2f} is over the limit of the card")
        return f"receipt-{order_id}"


async def bank() -> AsyncIterator[Bank]:
    """Connect to the bank once for each worker."""
    yield Bank()


# A charge must not happen twice. A task runs at least once, so the bank gets the order id as its
# idempotency key. The unique key refuses a second order with the same id while the first one waits.
@app.task(tube="payments", fatal=(CardRefused,), key=lambda order: order.id)
async def charge(order: Order, *, provider: Bank = Depends(bank, scope="app")) -> str:
    """Charge the customer, and return the receipt."""
    return await provider.charge(order.id, order.cents)


@app.task(tube="mail")
async def confirm(ctx: Context, order: Order) -> str:
    """Send the confirmation with the receipt of the charge before."""
    receipt = ctx.previous(str)
    log.info("mail to %s: thank you for order %s, %s", order.email, order.id, receipt)
    return receipt


@app.task(tube="reports", cron="0 6 * * *", time_zone="Europe/Vienna")
async def daily_report() -> None:
    """Send the figures of the day before, every morning at six."""
    log.info("the report of the day")
