"""The procedures of docs/disaster.md work for every member as the survivor.

The page has one example: n3 is lost, joins again, and then survives alone. These runs exchange the
names and ports of two nodes, and leave the first loss out, so that the survivor is a founder.
"""

import re

import pytest

from tests.docs.documents import ROOT, Session, blocks

pytestmark = [
    pytest.mark.docs,
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
]

PAGE = "docs/disaster.md"
MINORITY = "## A minority is lost"
MAJORITY = "## The majority is lost for good"
NODE = re.compile(r"\bn([123])\b|127\.0\.0\.1:75([012])")


def with_survivor(text: str, survivor: int) -> str:
    """Exchange node n3 with the survivor in commands."""
    other = {survivor: 3, 3: survivor}

    def exchanged(found: re.Match[str]) -> str:
        name, port = found.groups()
        if name:
            return f"n{other.get(int(name), int(name))}"
        return f"127.0.0.1:75{other.get(int(port) + 1, int(port) + 1) - 1}"

    return NODE.sub(exchanged, text)


def procedure(survivor: int, *, has_joined: bool) -> str:
    """Return the page for a survivor, which is a founder or has joined."""
    begin, minority, rest = (ROOT / PAGE).read_text().partition(MINORITY)
    if not has_joined:
        _, minority, rest = rest.partition(MAJORITY)
    assert minority
    return begin + with_survivor(rest, survivor)


# The page itself, which tests/docs/test_documents.py runs, is the case of n3 that has joined.
@pytest.mark.parametrize(
    ("survivor", "has_joined"), [(1, False), (2, False), (3, False), (1, True), (2, True)]
)
def test_any_member_can_be_the_survivor(survivor, has_joined):
    with Session() as session:
        for block in blocks(PAGE, procedure(survivor, has_joined=has_joined)):
            answer = session.run(block)
    others = {"n1", "n2", "n3"} - {f"n{survivor}"}
    last = answer.splitlines()  # of `cluster status`, after one more node has joined
    assert any(f"n{survivor}" in line and "leader" in line for line in last), answer
    assert sum(name in answer for name in others) == 1
