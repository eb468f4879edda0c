"""Which files a run of one stage skips."""

import pytest

from tests.gate.stages import check_source, may_have

ALL_OF_STAGE_2 = (
    "pytestmark = pytest.mark.cluster\n",
    "pytestmark = [\n    pytest.mark.skipif(slow, reason='no'),\n    pytest.mark.real_time,\n]\n",
)
SOME_OF_STAGE_2 = (
    "@pytest.mark.real_time\ndef test_one(): pass\ndef test_two(): pass\n",
    "KINDS = [pytest.param(1, marks=pytest.mark.foreign), 2]\n",
    "if pytest:\n    pytestmark = pytest.mark.spark\n",
)
NONE_OF_STAGE_2 = (
    "def test_pure(): pass\n",
    "pytestmark = pytest.mark.nightly\ncluster = 'real_time'\n",
)


def file_of(folder, source):
    file = folder / "test_one.py"
    file.write_text(source)
    return file


@pytest.mark.parametrize("source", ALL_OF_STAGE_2)
def test_stage_1_skips_a_file_whose_tests_are_all_of_stage_2(tmp_path, source):
    file = file_of(tmp_path, source)
    assert (may_have(file, 1), may_have(file, 2)) == (False, True)


@pytest.mark.parametrize("source", SOME_OF_STAGE_2)
def test_both_stages_read_a_file_with_some_marked_tests(tmp_path, source):
    file = file_of(tmp_path, source)
    assert (may_have(file, 1), may_have(file, 2)) == (True, True)


@pytest.mark.parametrize("source", NONE_OF_STAGE_2)
def test_stage_2_skips_a_file_without_a_marked_test(tmp_path, source):
    file = file_of(tmp_path, source)
    assert (may_have(file, 1), may_have(file, 2)) == (True, False)


def test_a_mark_in_conftest_counts_for_the_files_beside_it(tmp_path):
    (tmp_path / "conftest.py").write_text(SOME_OF_STAGE_2[1])
    assert may_have(file_of(tmp_path, NONE_OF_STAGE_2[0]), 2)


def test_a_test_that_its_own_stage_would_skip_fails_the_run(tmp_path):
    file = file_of(tmp_path, NONE_OF_STAGE_2[0])
    check_source(file, "test_pure", 1)
    with pytest.raises(pytest.UsageError, match="test_imported_mark is of stage 2, but the source"):
        check_source(file, "test_imported_mark", 2)
