"""A release changes the version in all places, makes its section of the changelog, is recorded."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.release.__main__ import check_source
from tools.release.changelog import ChangelogInvalid, has_section, released, unreleased
from tools.release.last_release import (
    LastRelease,
    ReleaseFileInvalid,
    read_last_release,
    write_last_release,
)
from tools.release.prepare import prepare
from tools.release.readiness import release_problems
from tools.release.record import record
from tools.release.versions import PLACES, current_version, differing_places, write_version
from tools.release.wheels import EDGE_FOLDER, FOLDERS, ReleaseFailed

ROOT = Path(__file__).parents[2]
NEW = "9.8.7"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXT = (
    "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A call.\n\n"
    "## [0.1.0] - 2026-01-02\n\nFirst.\n"
)


@pytest.fixture
def checkout(tmp_path):
    """Return a folder with the files that a release changes, and one page."""
    for place in PLACES:
        (tmp_path / place.name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place.name, tmp_path / place.name)
    (tmp_path / "CHANGELOG.md").write_text(TEXT)
    (tmp_path / "RELEASE").write_text("# A comment.\nnone\n")
    readme = (tmp_path / "README.md").read_text()
    (tmp_path / "README.md").write_text(readme.replace("no release yet", "one release"))
    return tmp_path


def git(folder, *arguments):
    user = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ("git", "-C", str(folder), *user, *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit_all(folder):
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-verify", "--message", "release")


def test_all_places_of_this_repository_have_one_version():
    assert differing_places(ROOT, current_version(ROOT)) == []


def test_each_distribution_is_a_place_of_the_version():
    projects = {
        (Path(folder) / "pyproject.toml").as_posix() for folder in [*FOLDERS.values(), EDGE_FOLDER]
    }
    assert projects <= {place.name for place in PLACES}


def test_a_place_with_another_version_or_none_is_named(checkout):
    version = current_version(checkout)
    path = checkout / "edge/Cargo.toml"
    path.write_text(path.read_text().replace(f'"{version}"', f'"{NEW}"', 1))
    path = checkout / "k8s/overlays/prod/kustomization.yaml"
    path.write_text(path.read_text().replace("newTag", "digest"))
    assert differing_places(checkout, version) == [
        f"edge/Cargo.toml has {NEW}; expected {version}",
        f"k8s/overlays/prod/kustomization.yaml has no version; expected {version}",
    ]


def test_a_version_is_written_into_all_places_and_nothing_else_changes(checkout):
    old = current_version(checkout)
    before = {place.name: (checkout / place.name).read_text() for place in PLACES}
    write_version(checkout, NEW)
    assert differing_places(checkout, NEW) == []
    write_version(checkout, old)
    assert {place.name: (checkout / place.name).read_text() for place in PLACES} == before


def test_unreleased_becomes_the_section_of_the_version():
    changed = released(TEXT, NEW, "2026-12-01")
    assert unreleased(changed) == ""
    assert has_section(changed, NEW)
    assert changed.replace(f"\n## [{NEW}] - 2026-12-01\n", "") == TEXT


@pytest.mark.parametrize(
    ("text", "version", "reason"),
    [
        (TEXT, "0.1.0", "has a section"),
        (TEXT.replace("### Added\n\n- A call.\n\n", ""), NEW, "is empty"),
        (TEXT.replace("Unreleased", "Next"), NEW, "has no section"),
    ],
)
def test_a_changelog_that_cannot_be_released_is_refused(text, version, reason):
    with pytest.raises(ChangelogInvalid, match=reason):
        released(text, version, "2026-12-01")


def test_a_section_without_a_date_does_not_count():
    assert not has_section(f"## [{NEW}]\n", NEW)
    assert not has_section(f"## [{NEW}] - 2026-12-01\n", "9.8.70")


def test_a_prepared_checkout_is_the_release(checkout):
    assert release_problems(checkout, NEW) != []
    assert prepare(checkout, NEW, "2026-12-01") == []
    assert check_source(checkout, NEW) == NEW


def test_a_page_that_knows_no_release_is_left_to_do(checkout):
    (checkout / "docs/faq.md").write_text("There is no release yet.\n")
    assert prepare(checkout, NEW, "2026-12-01") == [
        'docs/faq.md says "no release yet"; correct the page'
    ]


@pytest.mark.parametrize("version", ["0.1", "v1.2.3", "1.2.3rc1", "0.1.0", "0.0.9"])
def test_a_version_that_cannot_follow_changes_nothing(checkout, version):
    write_last_release(checkout, LastRelease("0.1.0", COMMIT))
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"of the form|not higher"):
        prepare(checkout, version, "2026-12-01")
    assert {path: path.read_bytes() for path in before} == before


def test_a_build_of_a_version_needs_the_section_of_the_changelog(checkout):
    write_version(checkout, NEW)
    assert check_source(checkout, "") == NEW
    with pytest.raises(ReleaseFailed, match=rf"no section \[{NEW}\]"):
        check_source(checkout, NEW)


def test_the_file_release_of_this_repository_can_be_read():
    release = read_last_release(ROOT)
    assert release is None or release.version


def test_a_release_is_written_below_the_comments(checkout):
    assert read_last_release(checkout) is None
    write_last_release(checkout, LastRelease(NEW, COMMIT))
    assert read_last_release(checkout) == LastRelease(NEW, COMMIT)
    assert (checkout / "RELEASE").read_text() == f"# A comment.\n{NEW} {COMMIT}\n"


@pytest.mark.parametrize("text", ["", f"{NEW}\n", f"{NEW} 0123\n", f"none\n{NEW} {COMMIT}\n"])
def test_another_content_of_the_file_release_is_refused(checkout, text):
    (checkout / "RELEASE").write_text(text)
    with pytest.raises(ReleaseFileInvalid, match="expected one line"):
        read_last_release(checkout)


def test_a_missing_file_release_is_refused(tmp_path):
    with pytest.raises(ReleaseFileInvalid, match="does not exist"):
        read_last_release(tmp_path)


@pytest.mark.real_time
def test_the_commit_of_a_release_is_recorded_once(checkout):
    prepare(checkout, NEW, "2026-12-01")
    commit_all(checkout)
    assert record(checkout) == []
    head = git(checkout, "rev-parse", "HEAD")
    assert read_last_release(checkout) == LastRelease(NEW, head)
    assert record(checkout) == ["the checkout has uncommitted changes; commit the release first"]
    commit_all(checkout)
    assert record(checkout) == [f"version {NEW} was released already, at the commit {head}"]


@pytest.mark.real_time
def test_a_commit_that_is_no_release_is_not_recorded(checkout):
    commit_all(checkout)
    assert 'CHANGELOG.md has changes in "Unreleased"' in record(checkout)
    assert read_last_release(checkout) is None
