"""The counts of many tubes come in pages, each read at another time."""

from taskraft_service.api.tubes import statistics


async def test_the_revision_of_several_pages_is_that_of_the_first(memory_client, monkeypatch):
    monkeypatch.setattr(statistics, "PAGE_SIZE_MAX", 1)
    await memory_client.create_tube("b")
    revisions = []
    pages = memory_client._connection.pages

    async def with_puts_between(*args, **options):
        async for page in pages(*args, **options):
            revisions.append(page.revision)
            yield page
            await memory_client.tube("b").put("x")

    monkeypatch.setattr(memory_client._connection, "pages", with_puts_between)
    counts = await memory_client.stats()
    assert [one.tube for one in counts.tubes] == ["b", "emails"]
    assert counts.revision == revisions[0] < revisions[1], "b changed after its page"
