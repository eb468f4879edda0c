"""CI skips the native edge only where the edge cannot be built, and says why."""

import os
import sys

import pytest

from tools import native_edge

pytestmark = pytest.mark.real_time

RECENT = "cargo 99.0.0 (abc 2099-01-01)"


@pytest.fixture
def cargo(tmp_path, monkeypatch):
    """Return a function that puts a program with the name cargo first on the path."""

    def install(version, error="", status=0):
        program = tmp_path / "cargo"
        program.write_text(
            f"#!{sys.executable}\n"
            "import sys\n"
            f"if '--version' in sys.argv: sys.exit(print({version!r}))\n"
            f"print({error!r}, file=sys.stderr)\n"
            f"sys.exit({status})\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return install


def test_crates_that_are_downloaded_are_no_reason(cargo):
    cargo(RECENT)
    assert native_edge.download_crates() == ""


def test_a_registry_that_is_away_is_a_reason(cargo):
    cargo(RECENT, "error: download failed: could not resolve host", 101)
    assert "could not resolve host" in native_edge.download_crates()


@pytest.mark.parametrize("error", native_edge.MANIFEST_ERRORS)
def test_an_error_in_the_manifest_is_no_reason(cargo, error):
    cargo(RECENT, f"error: {error} `nothing`", 101)
    assert native_edge.download_crates() == ""


def test_an_old_cargo_is_a_reason(cargo):
    cargo("cargo 1.63.0 (abc 2022-01-01)")
    assert "older than" in native_edge.download_crates()


def test_a_missing_cargo_is_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native_edge.download_crates() == "cargo is not installed"


def test_the_warning_names_the_reason(cargo, monkeypatch):
    cargo(RECENT, "error: timed out", 101)
    monkeypatch.setattr(sys, "argv", ["native_edge", "--crates"])
    with pytest.raises(SystemExit, match=r"WARNING: .*timed out"):
        native_edge.main()
