"""The HTTP interface of the shop; run it with `uvicorn examples.web_shop.api:api`."""

from __future__ import annotations

from fastapi import FastAPI, HTTPException

from examples.web_shop.tasks import Order, app, charge, confirm
from taskraft import errors
from taskraft.integrations.starlette import lifespan
from taskraft.worker import chain

# `worker={}` runs a worker in this process. In production, leave it out and run
# `taskraft worker examples.web_shop.tasks:app` in processes of its own.
api = FastAPI(title="Web shop", lifespan=lifespan(app, worker={}))


@api.post("/orders", status_code=202)
async def place(order: Order) -> dict[str, str]:
    """Accept an order: the customer is charged first, and then gets the confirmation."""
    try:
        handle = await chain(charge.plan(order), confirm.plan(order)).aput()
    except errors.KeyTaken as error:
        raise HTTPException(409, f"order {order.id} is in work already") from error
    return {"status": f"/orders/{handle}"}


@api.get("/orders/{tube}/{number}")
async def status(tube: str, number: int, wait: int = 0) -> dict[str, str]:
    """Return the state of an order; wait up to `wait` seconds for its end."""
    if tube != confirm.tube:
        raise HTTPException(404, "no such order")
    found = await confirm.handle(number).aoutcome(timeout=min(wait, 30))
    match found.outcome:
        case "PROCESSED":
            return {"status": "confirmed", "receipt": found.value or ""}
        case "TIMEOUT":
            return {"status": "in work"}
        case _:
            return {"status": "failed", "reason": found.failure}
