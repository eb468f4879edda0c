"""Parsing of options, and errors for invalid values."""

import pytest

from taskraft_pipeline.errors import OffsetInvalid, OptionInvalid
from taskraft_pipeline.offsets import Offset
from taskraft_pipeline.options import Bound, Options, parse
from taskraft_pipeline.schema import COLUMNS

GIVEN = {"endpoints": "10.0.0.1:7301, [::1]:7302"}


def test_only_the_endpoints_must_be_given():
    assert parse(GIVEN) == Options(endpoints=("10.0.0.1:7301", "[::1]:7302"))


def test_every_option_is_read_in_any_case():
    options = parse(
        {
            **GIVEN,
            "STARTINGOFFSETS": "earliest",
            "endingoffsets": '{"v": 1, "feed": "f", "p": {"000": 4}}',
            "tubes": "mail, billing",
            "kinds": "put, ACK",
            "columns": "ts, tube",
            "maxEventsPerTrigger": "7",
            "targetEventsPerTask": "8",
            "failOnDataLoss": "False",
            "consumer": "journal",
            "minPollInterval": "0ms",
            "connectTimeout": "2s",
            "readTimeout": "3m",
            "maxOutage": "10m",
        }
    )
    assert options == Options(
        endpoints=("10.0.0.1:7301", "[::1]:7302"),
        starting=Bound.EARLIEST,
        ending=Offset("f", {0: 4}),
        tubes=("mail", "billing"),
        kinds=("put", "ack"),
        columns=("ts", "tube"),
        events_per_trigger_max=7,
        events_per_task=8,
        is_loss_failure=False,
        consumer="journal",
        poll_interval_ms=0,
        connect_timeout_ms=2_000,
        read_timeout_ms=180_000,
        outage_max_ms=600_000,
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("endpoints", "", "host:port"),
        ("endpoints", "nowhere", "host:port"),
        ("maxEventPerTrigger", "5", "unknown option maxeventpertrigger"),
        ("startingOffsets", "newest", "earliest, latest"),
        ("kinds", "put,peek", "unknown kind peek; the kinds are: put, take"),
        ("columns", "tube,colour", "unknown column colour"),
        ("columns", "tube,tube", "twice"),
        ("maxEventsPerTrigger", "0", "at least 1"),
        ("maxEventsPerTrigger", "-1", "at least 1"),
        ("targetEventsPerTask", "many", "at least 1"),
        ("failOnDataLoss", "no", "true or false"),
        ("readTimeout", "60", "250ms, 60s, 10m or 7d"),
        ("consumer", "c" * 129, "128 bytes"),
    ],
)
def test_an_invalid_option_value_is_refused_with_the_valid_ones(name, value, said):
    with pytest.raises(OptionInvalid, match=said):
        parse({**GIVEN, name: value})


def test_a_damaged_offset_is_refused():
    with pytest.raises(OffsetInvalid):
        parse({**GIVEN, "startingOffsets": '{"v": 1}'})


def test_all_columns_are_the_default():
    assert parse(GIVEN).columns == tuple(COLUMNS)
