"""A client program for the conformance suite that uses the Python client of this repository."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from types import SimpleNamespace

from taskraft import AsyncClient, TaskraftError, errors
from taskraft.v1 import task_service_pb2 as pb

ACK = pb.Settlement(ack=pb.Settlement.Ack())


class Program:
    """Answers the commands with one client, and one subscription at a time."""

    def __init__(self) -> None:
        self.clients = {}
        self.client = self.client_of("")
        self.stream = self.following = None
        self.tasks = {}
        """Tasks of the stream that were returned, by token."""

    def client_of(self, client_id):
        if client_id not in self.clients:
            client = self.clients[client_id] = AsyncClient(client_id=client_id)
            # The hints name the nodes themselves: the calls would pass the proxies of the suite by.
            client._connection.nodes.selector.set_leader_hint = lambda _address: None
        return self.clients[client_id]

    async def put(self, tube, tasks, request_id="", client_id=""):
        to = self.client_of(client_id).tube(tube)
        planned = [to.task(base64.b64decode(one["payload"]), **options(one)) for one in tasks]
        if request_id:
            (one,) = tasks
            payload = base64.b64decode(one["payload"])
            return {"task_ids": [str(await to.put(payload, request_id=request_id, **options(one)))]}
        try:
            ids, refused = await to.put_many(planned), {}
        except errors.ItemsRefused as error:
            ids, refused = error.task_ids, error.refused
        return {"task_ids": [str(one) for one in ids], "errors": items(refused)}

    async def take(self, tube, tasks_max, wait_ms, ttr_ms=None):
        ttr = {} if ttr_ms is None else {"ttr": int(ttr_ms) / 1_000}
        wait = int(wait_ms) / 1_000
        tasks = await self.client.take_many(tube, tasks_max, wait=wait, **ttr)
        return {"tasks": [shown(task) for task in tasks]}

    async def settle(self, action, tokens, delay_ms=0, increment_ms=0):
        actions = {
            "ack": ACK,
            "bury": pb.Settlement(bury=pb.Settlement.Bury()),
            "release": pb.Settlement(release=pb.Settlement.Release(delay_ms=int(delay_ms))),
            "touch": pb.Settlement(touch=pb.Settlement.Touch(increment_ms=int(increment_ms))),
        }
        refused = {}
        try:
            await self.client.settle([int(token) for token in tokens], actions[action])
        except errors.ItemsRefused as error:
            refused = error.refused
        except errors.LeaseStale as error:  # the only lease
            refused = {0: error}
        return {"errors": items(refused)}

    async def subscribe(self, tube, credit, session_ttr_ms=None):
        ttr = {} if session_ttr_ms is None else {"session_ttr": int(session_ttr_ms) / 1_000}
        self.stream = await self.client.subscribe(tube, credit=credit, **ttr).__aenter__()
        return {}

    async def next(self, wait_ms):
        # The step goes on after the wait, so that no task gets lost with it.
        self.following = self.following or asyncio.ensure_future(anext(self.stream))
        done, _ = await asyncio.wait([self.following], timeout=int(wait_ms) / 1_000)
        if not done:
            return {"task": None}
        following, self.following = self.following, None
        task = await following
        self.tasks[task.token] = task
        return {"task": shown(task)}

    async def stream_ack(self, tokens):
        numbers = [int(token) for token in tokens]
        tasks = [self.tasks.get(one) or SimpleNamespace(token=one) for one in numbers]
        outcomes = await self.stream.settle(tasks, [ACK] * len(tasks))
        refused = {item: error for item, error in enumerate(outcomes) if error is not None}
        return {"errors": items(refused)}

    async def unsubscribe(self):
        if self.following is not None:
            self.following.cancel()
            self.following = None
        await self.stream.close()
        return {}


def options(one):
    found = {key: base64.b64decode(text) for key, text in one.get("headers", {}).items()}
    found = {"headers": found}
    if "priority" in one:
        found["priority"] = int(one["priority"])
    if "delay_ms" in one:
        found["delay"] = int(one["delay_ms"]) / 1_000
    return found


def items(refused):
    return [{"item": item, "reason": error.reason} for item, error in refused.items()]


def shown(task):
    return {
        "id": str(task.id),
        "token": str(task.token),
        "attempt": task.attempt,
        "payload": base64.b64encode(task.payload).decode(),
        "headers": {key: base64.b64encode(one).decode() for key, one in task.headers.items()},
    }


async def main():
    program = Program()
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        try:
            answer = await getattr(program, command.pop("call"))(**command)
        except TaskraftError as error:
            content = {"code": error.code, "reason": error.reason, "message": str(error)}
            answer = {"error": {**content, "metadata": dict(error.metadata)}}
        print(json.dumps(answer), flush=True)
    for client in program.clients.values():
        await client.close()


if __name__ == "__main__":
    asyncio.run(main())
