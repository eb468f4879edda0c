"""Names and patterns in the list of tubes, and the reasons that hold a tube back."""

import pytest

from taskraft import TubeInfo, TubeStatistics
from taskraft.v1 import tube_service_pb2
from taskraft.v1.tube_service_pb2 import Tube, TubeOptions
from taskraft_console.data.tube_reads import CountedTube
from taskraft_console.pages.tube import limits_of
from taskraft_console.pages.tubes import matches
from taskraft_console.views.trend import UNKNOWN_TREND, Trend


def counts_of(**tasks):
    counts = tube_service_pb2.TubeStatistics.Tasks(**tasks)
    return TubeStatistics.of(tube_service_pb2.TubeStatistics(tasks=counts, waiting=1))


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("mail.bulk", "mail.*", True),
        ("mail", "mail.*", False),
        ("mail.bulk", "BULK", True),
        ("mail.bulk", "*bulk", True),
        ("mail[1]", "mail[*", True),
        ("mailx1", "mail[x]*", False),
    ],
)
def test_a_pattern_selects_names(name, pattern, expected):
    assert matches(name, pattern) is expected


@pytest.mark.parametrize(("kind", "blocked"), [("fifottl", False), ("utube", True)])
def test_only_a_tube_with_subqueues_is_held_back_by_them(kind, blocked):
    info = TubeInfo.of(Tube(name="t", kind=Tube.Kind.Value(kind.upper())))
    found = list(limits_of(CountedTube(info, counts_of(ready=2)), UNKNOWN_TREND, []))
    assert [text for text in found if text.startswith("sub-queues")] == found
    assert bool(found) is blocked


def test_a_limit_is_named_only_when_it_holds_the_tube_back():
    options = TubeOptions(concurrency=4, rate_per_second=10)
    info = TubeInfo.of(Tube(name="t", kind=Tube.FIFOTTL, options=options))

    def found(taken, ack_rate):
        counts = counts_of(ready=2, taken=taken)
        return list(limits_of(CountedTube(info, counts), Trend(ack_rate=ack_rate), []))

    assert found(3, 8.0) == []
    assert found(4, 8.0) == ["concurrency: 4 of 4 tasks are taken"]
    assert found(3, 9.5) == ["rate: about 10 of at most 10 takes per second"]
