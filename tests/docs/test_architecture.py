"""Check the page of the architecture against the import contracts and the decision records."""

import re
import tomllib

import pytest

from tests.docs.documents import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
PICTURE = PAGE.partition("## Packages")[2].split("```")[1]


def layers_of(container):
    """Return the layers of a package as sets of names, the uppermost layer first."""
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = (
        contract
        for contract in configuration["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == [container]
    )
    return [{name.strip() for name in layer.split("|")} for layer in contract["layers"]]


def packages_in_picture(container):
    """Return the packages below a container in the picture, from top to bottom."""
    part = PICTURE.partition(f"/{container}\n")[2].partition("replication/")[0]
    return re.findall(r"^   (\w+)(?:/|\.py) ", part, re.MULTILINE)


@pytest.mark.parametrize(
    "container", ["service/taskraft_service", "replication/taskraft_replication"]
)
def test_the_picture_lists_the_packages_in_the_order_of_their_layers(container):
    name = container.rpartition("/")[2]
    drawn = packages_in_picture(name)
    folders = {path.parent.name for path in (ROOT / container).glob("*/__init__.py")}
    assert folders <= set(drawn)
    layers = layers_of(name)
    # The generated messages and the pure core stand at the end of each list, whatever their layer.
    ordered = [one for one in drawn if one not in {"queue", "core", "stubs"}]
    places = [next(place for place, names in enumerate(layers) if one in names) for one in ordered]
    assert places == sorted(places)


def test_every_decision_record_is_listed_with_its_number():
    files = {path.name for path in (ROOT / "docs" / "decisions").glob("*.md")}
    listed = re.findall(r"^\| \[(\d+)\]\(decisions/(.+\.md)\)", PAGE, re.MULTILINE)
    assert {name for _, name in listed} == files
    assert [int(name[:4]) for _, name in listed] == [int(number) for number, _ in listed]
