"""The overview: the first page after a start, who answers, and how many members can be lost."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from taskraft import Statistics
from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse, Member
from taskraft.v1.tube_service_pb2 import GetHistoryResponse, GetStatisticsResponse
from taskraft_console.console_settings import ConsoleSettings
from taskraft_console.data.shared_reads import Reading
from taskraft_console.data.tube_reads import BriefCounts, BriefInfo, ListedTube, ListedTubes
from taskraft_console.page_templates import PageTemplates
from taskraft_console.pages.overview import (
    COUNTING_SECONDS,
    active_members,
    is_active,
    losable_members,
    overview,
)
from taskraft_console.pages.page import PageVisit
from taskraft_console.static_files import StaticFiles
from taskraft_console.views.readable import readable_count


def state_of(leader, active):
    state = GetClusterStateResponse(leader=leader)
    for name in ("n1", "n2", "n3"):
        state.members.add(
            name=name, suffrage=Member.VOTER, leader=name == leader, active=name in active
        )
    return state


@pytest.mark.parametrize(
    ("leader", "active", "answering", "silent", "can_lose"),
    [
        ("n1", ("n2", "n3"), (), [], 1),
        ("n1", ("n2",), ("n3",), ["n3"], 0),
        ("", ("n1", "n2", "n3"), ("n3",), ["n1", "n2"], 0),
        ("", (), ("n1", "n2", "n3"), [], 1),
    ],
)
def test_without_a_leader_only_nodes_that_answer_the_console_count(
    leader, active, answering, silent, can_lose
):
    state = state_of(leader, active)
    found = [each.name for each in state.members if not is_active(state, each, answering)]
    assert found == silent
    assert active_members(state, answering) == 3 - len(silent)
    assert losable_members(state, answering) == can_lose


class Cluster:
    """A cluster whose tubes are counted or not; all else is empty."""

    def __init__(self, tubes):
        self.tubes = tubes

    async def tubes_soon(self):
        return self.tubes

    async def state(self):
        return Reading(state_of("n1", ("n2", "n3")), 0.0)

    async def total(self):
        return Reading(Statistics.of(GetStatisticsResponse(tube_count=10_000), ()), 0.0)

    async def history(self, _):
        known = GetHistoryResponse(step_ms=10_000)
        known.histories.add(tube="failing", buried=[-1, 4, 42])
        return Reading(known, 0.0)


async def content_of(cluster):
    settings = ConsoleSettings(target="")
    visitor = SimpleNamespace(csrf="")
    visit = PageVisit(settings=settings, visitor=visitor, cluster=cluster, path={}, query={})
    view = await overview(visit)
    return view, PageTemplates(settings, StaticFiles("")).content(visit, view)


async def test_the_first_overview_does_not_wait_for_the_counts_of_all_tubes():
    view, html = await content_of(Cluster(None))
    assert "The tubes are being counted." in html
    assert f"of {readable_count(10_000)}<" in html
    assert "Nothing needs attention" not in html
    assert "No tubes yet" not in html
    assert view.refresh_seconds == COUNTING_SECONDS
    info = BriefInfo("mail", "fifottl", False, False, False, 0)
    counts = BriefCounts(Statistics.of(GetStatisticsResponse(), ()).total.tasks, 0, 0)
    counted = Reading(ListedTubes((ListedTube(info, counts),), 0), 0.0)
    later, html = await content_of(Cluster(counted))
    assert "being counted" not in html
    assert "/tubes/mail" in html
    assert later.refresh_seconds > COUNTING_SECONDS


async def test_an_alarm_says_whether_a_problem_grows():
    info = BriefInfo("failing", "fifottl", False, False, False, 0)
    tasks = replace(Statistics.of(GetStatisticsResponse(), ()).total.tasks, buried=42)
    counted = Reading(ListedTubes((ListedTube(info, BriefCounts(tasks, 0, 0)),), 0), 0.0)
    _, html = await content_of(Cluster(counted))
    assert "failing: 42 buried, +38 in 10 minutes" in html
