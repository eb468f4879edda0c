"""The search for the tasks of a group."""

from types import SimpleNamespace

from taskraft import errors
from taskraft_console.data.group_tasks import find_group_tasks


class TubeOfOne:
    """A tube with one task, or a tube that was dropped."""

    def __init__(self, name):
        self.name = name

    async def page(self, where, **_):
        assert where == 'group = "book"'
        if self.name == "dropped":
            raise errors.TubeNotFound("there is no tube 'dropped'")
        return SimpleNamespace(tasks=[f"task of {self.name}"], next_token="")


async def test_a_tube_that_was_dropped_meanwhile_is_left_out():
    client = SimpleNamespace(tube=TubeOfOne)
    found = await find_group_tasks(client, "book", ["first", "dropped", "last"], 1.0)
    assert found.tasks == ("task of first", "task of last")
    assert found.is_complete
