"""A worker process spares the garbage collector."""

import gc

import pytest

from taskraft.worker.collector import YOUNG_OBJECTS_MAX, spare_the_collector


@pytest.fixture
def _collector():
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_collector")
def test_scans_are_rarer_and_omit_the_objects_built_so_far():
    old = [[]]
    spare_the_collector()
    assert gc.get_threshold()[0] == YOUNG_OBJECTS_MAX
    assert gc.isenabled()
    new = [[]]
    scanned = {id(each) for each in gc.get_objects()}
    assert id(old) not in scanned
    assert id(new) in scanned
