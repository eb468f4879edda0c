"""Check that the page about stored data lists every key prefix and the current format."""

import re

from taskraft_service.queue.persistence.state_records import FORMAT
from taskraft_service.queue.store import keys
from tests.docs.documents import ROOT

PAGE = (ROOT / "docs" / "data.md").read_text()


def test_the_table_has_each_prefix_of_a_key_once():
    prefixes = {
        content.decode()
        for name, content in vars(keys).items()
        if name.isupper() and isinstance(content, bytes) and len(content) == 1
    }
    assert prefixes, "keys.py has no prefixes by these names any more"
    rows = re.findall(r"^\| `(\w)` \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(prefixes)


def test_the_page_names_the_current_format():
    assert f"the version of this format, currently {FORMAT}." in " ".join(PAGE.split())
