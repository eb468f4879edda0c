"""Check the results that the cluster keeps."""

import pytest

from demo.results_check import check_results
from demo.source_files import Findings, examine


@pytest.fixture(name="path")
def source_file(tmp_path):
    path = tmp_path / "os.py"
    path.write_text("import sys\n")
    return path


def test_a_result_that_matches_the_file_is_clean(path):
    judged = check_results({1: str(path)}, {1: examine(path)})
    assert judged.stored == 1
    assert judged.is_clean


@pytest.mark.parametrize("stored", [Findings("0" * 64, 1), None])
def test_a_result_that_differs_from_the_file_is_wrong(path, stored):
    judged = check_results({1: str(path)}, {1: stored})
    assert judged.wrong == [str(path)]
    assert not judged.is_clean


def test_a_result_that_was_not_kept_is_missing(path):
    judged = check_results({1: str(path)}, {})
    assert judged.missing == [str(path)]
    assert not judged.is_clean
