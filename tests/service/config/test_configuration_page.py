"""The configuration reference is current and names every setting with its unit and bounds."""

import pytest

from taskraft_service.config.server_config import ServerConfig
from tools import configuration_page


def test_the_page_is_current():
    page = configuration_page.PAGE.read_text()
    assert page == configuration_page.page(), "run `python -m tools.configuration_page`"


def test_the_page_has_one_row_per_setting():
    page = configuration_page.page()
    rows = [line for line in page.splitlines() if line.startswith("| `TASKRAFT_")]
    named = [line.split("`")[3] for line in rows]
    assert sorted(named) == sorted(ServerConfig.model_fields)


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("collect_ms", 500, "500 ms"),
        ("join_wait_ms", 60_000, "60 000 ms (1 min)"),
        ("log_kept_bytes", 3 << 20, "3 145 728 bytes (3 MiB)"),
        ("calls_max", 10_000, "10 000"),
        ("payload_bytes_max", 1, "1 byte"),
    ],
)
def test_an_amount_is_shown_in_the_unit_of_its_name(name, number, text):
    assert configuration_page.amount(name, number) == text
