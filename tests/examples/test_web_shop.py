"""The web shop: orders over HTTP, on the real queue in memory."""

import httpx2
import pytest

from examples.web_shop.api import api
from examples.web_shop.tasks import CardRefused, app, charge

pytestmark = pytest.mark.taskraft(app=app, start="2027-01-01T00:00+01:00")
ORDER = {"id": "4711", "email": "anna@example.org", "cents": 1999}


@pytest.fixture
async def http(ataskraft):
    await app.acreate_tubes()
    transport = httpx2.ASGITransport(api)
    async with httpx2.AsyncClient(transport=transport, base_url="http://shop") as client:
        yield client


async def test_an_order_is_charged_and_confirmed(ataskraft, http):
    accepted = await http.post("/orders", json=ORDER)
    status = accepted.json()["status"]
    assert (accepted.status_code, await said(http, status)) == (202, {"status": "in work"})
    await ataskraft.run_until_idle()
    assert await said(http, status) == {"status": "confirmed", "receipt": "receipt-4711"}


async def said(http, path):
    return (await http.get(path)).json()


async def test_an_outage_of_the_bank_delays_an_order(ataskraft, http):
    status = (await http.post("/orders", json=ORDER)).json()["status"]
    ataskraft.fail(charge, ConnectionError("no answer"), ConnectionError("no answer"))
    with ataskraft.expect_failures(ConnectionError):
        await ataskraft.run_until_idle()
        assert await said(http, status) == {"status": "in work"}
        await ataskraft.advance("1m")
    assert (await said(http, status))["status"] == "confirmed"


async def test_a_refused_card_is_not_tried_again(ataskraft, http):
    await http.post("/orders", json={**ORDER, "cents": 200_000})
    with ataskraft.expect_failures(CardRefused) as failures:
        await ataskraft.advance("1h")
    assert len(failures) == 1
    assert await ataskraft.states("payments") == {"BURIED": 1}


async def test_the_same_order_is_refused_while_it_is_in_work(ataskraft, http):
    codes = [(await http.post("/orders", json=ORDER)).status_code for _ in range(2)]
    assert codes == [202, 409]


async def test_an_unknown_order_is_not_found(http):
    assert (await http.get("/orders/payments/1")).status_code == 404


async def test_the_report_is_sent_every_morning(ataskraft):
    assert (await ataskraft.advance("3d")).attempts == 3
