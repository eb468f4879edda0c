"""An app in a FastAPI application: connected by the lifespan, with a worker or without one."""

import pytest
from fastapi.testclient import TestClient
from httpx2 import ASGITransport, AsyncClient

from taskraft import Client, errors
from taskraft.integrations.starlette import lifespan
from taskraft.worker import App
from tests.clients.integrations import web_shop


@pytest.fixture
def real_app(node, monkeypatch):
    """Let the app of the shop use a real node."""
    monkeypatch.setattr(web_shop.app.clients, "_target", node.target)
    with Client(node.target) as client:
        yield client
        client.drop_tube("mail")


def called(api):
    return AsyncClient(transport=ASGITransport(api), base_url="http://shop.example")


@pytest.mark.taskraft(app=web_shop.app)
async def test_an_endpoint_puts_with_the_app_of_the_lifespan(ataskraft):
    api = web_shop.api()
    async with api.router.lifespan_context(api), called(api) as http:
        answer = await http.post("/tasks", params={"name": "Anna"})
    assert answer.json() == "mail/1"
    assert await ataskraft.states("mail") == {"READY": 1}


@pytest.mark.taskraft(app=web_shop.app)
async def test_an_endpoint_without_the_lifespan_says_what_is_missing(ataskraft):
    async with called(web_shop.api(lifespan=None)) as http:
        with pytest.raises(RuntimeError, match="lifespan"):
            await http.post("/tasks", params={"name": "Anna"})


@pytest.mark.cluster
@pytest.mark.parametrize("path", ["/tasks", "/tasks-in-threads"])
def test_a_server_with_a_worker_runs_its_own_tasks(real_app, path):
    with TestClient(web_shop.api(worker={"threads": 1})) as http:
        reference = http.post(path, params={"name": "Anna"}).json()
        assert http.get(f"/results/{reference}").json() == "Hello Anna"


@pytest.mark.cluster
def test_a_server_without_a_worker_leaves_tasks_to_others(real_app):
    with TestClient(web_shop.api()) as http:
        for path in ("/tasks", "/tasks-in-threads"):
            http.post(path, params={"name": "Anna"})
    assert real_app.tube("mail").stats().tasks.ready == 2


@pytest.mark.parametrize("worker", [None, {}])
async def test_a_server_does_not_start_without_its_cluster(worker):
    app = App("web", target="127.0.0.1:1")
    app.task(web_shop.welcome.signature.function)
    with pytest.raises(errors.TaskraftError):
        async with lifespan(app, worker=worker, start_timeout="10ms")(web_shop.api()):
            raise AssertionError("the server has started")
