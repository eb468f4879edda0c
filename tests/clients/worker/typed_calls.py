"""Calls of tasks as a type checker sees them; a line marked ``# E: code`` must be an error."""

from collections.abc import AsyncIterator
from typing import assert_type

from taskraft.worker import App, Context, Depends, Handle, Plan, TaskFunction

app = App("typed")


async def link() -> AsyncIterator[str]:
    yield "link"


@app.task
async def welcome(order: int, *, greeting: str = "Hi") -> str:
    return f"{greeting} {order}"


@app.task(tube="images", time_limit="30m", fatal=(ValueError,))
def thumbnail(ctx: Context, path: str, width: int = 200) -> bytes:
    return path.encode()


@app.task(keep_result="1d")
async def index(ctx: Context, row: int, *, connection: str = Depends(link)) -> list[int]:
    return [row]


@app.batch_task(size=10)
async def embed(ctx: Context, texts: list[str]) -> list[float]:
    return [0.5] * len(texts)


@app.batch_task()
def archive(rows: list[int]) -> None: ...


@app.batch_task
async def bare(ctx: Context, rows: list[int]) -> list[str]:
    return [str(row) for row in rows]


@app.batch_task
def bare_without_result(rows: list[str]) -> None: ...


@app.batch_task()  # E: arg-type
def no_list(row: int) -> int:
    return row


def batches() -> None:
    assert_type(embed.put("a"), Handle[float])
    assert_type(archive.plan(3), Plan[None])
    assert_type(app.put_many([embed.plan("a"), embed.plan("b")]), list[Handle[float]])
    assert_type(bare.put(3), Handle[str])
    assert_type(bare_without_result.plan("a"), Plan[None])
    archive.put("3")  # E: arg-type
    embed.put(["a"])  # E: arg-type


def blocking() -> None:
    assert_type(welcome, TaskFunction[[int], str])  # E: assert-type
    assert_type(welcome.put(7), Handle[str])
    assert_type(welcome.put(7, greeting="Hello").result(), str)
    assert_type(thumbnail.put("a", width=2).result("1m"), bytes)
    assert_type(thumbnail.plan("a"), Plan[bytes])
    assert_type(index.options(delay="1m", priority=2).put(7).outcome().value, list[int] | None)
    covariant: Handle[object] = welcome.put(7)
    print(covariant)
    welcome.put("7")  # E: arg-type
    welcome.put()  # E: call-arg
    welcome.put(7, salutation="x")  # E: call-arg
    thumbnail.put(3)  # E: arg-type
    thumbnail.plan("a", "wide")  # E: arg-type
    welcome.options(dellay="1m")  # E: call-arg
    number: int = welcome.put(7).result()  # E: assignment
    print(number)


async def asynchronous() -> None:
    assert_type(await index.aput(7), Handle[list[int]])
    assert_type(await (await index.aput(row=7)).aresult(), list[int])
    await index.aput("7")  # E: arg-type
    await welcome.put(7)  # E: misc
    late: Handle[str] = welcome.aput(7)  # E: assignment
    print(late)


@app.task(tubes="mail")  # E: call-overload, untyped-decorator
def misspelt() -> None: ...


@app.task(fatal=ValueError)  # E: call-overload, untyped-decorator
def not_a_tuple() -> None: ...
