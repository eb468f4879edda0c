"""Which tests run in one process."""

import re
from types import SimpleNamespace

import pytest

from tests.gate.scheduler import APART, SHARING, FileScheduler

SPARK = ("tests/pipeline/test_report.py", "tests/pipeline/test_export.py")


def scopes(files, stage):
    options = SimpleNamespace(getvalue=lambda _: ["2*popen"], getoption=lambda _: stage)
    scheduler = FileScheduler(options, None)
    return [scheduler._split_scope(f"{file}::test_one[a::b]") for file in files]


def test_files_that_share_a_jvm_run_in_one_process_of_stage_2():
    assert scopes(SPARK, 2) == ["tests/pipeline", "tests/pipeline"]


def test_all_other_files_run_in_any_process():
    pure = ("tests/pipelines/test_one.py", "tests/docs/test_documents.py")
    assert scopes(pure, 2) == list(pure)
    assert scopes(SPARK, 1) == list(SPARK)


@pytest.mark.parametrize("folder", SHARING)
def test_a_folder_that_shares_has_a_fixture_of_the_session(folder, pytestconfig):
    fixtures = pytestconfig.rootpath / folder / "conftest.py"
    assert '@pytest.fixture(scope="session")' in fixtures.read_text()


@pytest.mark.parametrize("file", APART)
def test_a_file_without_a_shared_program_runs_in_any_process(file, pytestconfig):
    assert scopes((file, SPARK[0]), 2) == [file, "tests/pipeline"]
    source = (pytestconfig.rootpath / file).read_text()
    assert re.findall(r"^def test_\w+\([^)]*\bspark\b", source, re.MULTILINE) == []
