"""The table of cluster versions in docs/upgrading.md is the table of the code."""

import re

from taskraft_service.versions import FORMATS
from tests.docs.documents import ROOT


def test_the_table_has_each_cluster_version_with_its_formats():
    page = (ROOT / "docs" / "upgrading.md").read_text()
    rows = re.findall(r"^\| (\d+) \| [^|]+ " + r"\| (\d+) " * 4 + r"\|$", page, re.MULTILINE)
    assert [tuple(map(int, row)) for row in rows] == [
        (version, formats.state, formats.feed, formats.snapshot, formats.digest)
        for version, formats in sorted(FORMATS.items())
    ]
