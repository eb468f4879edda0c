"""Check which applied entries the written state contains, and so a snapshot."""

from taskraft_service.storage.rocks import RocksStore
from tests.service.machine.test_state_machine import machine_in, puts, story


def test_applied_entries_are_written_on_request_unless_the_store_would_block(tmp_path):
    class Choked(RocksStore):
        is_choked = True

    machine = machine_in(tmp_path / "state", entries=1_000, store=Choked)
    machine.apply(story())
    machine.apply(puts(7, 7, 1))
    machine.write_applied()
    assert machine.snapshot_index == 6
    Choked.is_choked = False
    machine.write_applied()
    assert machine.open_snapshot().index == machine.snapshot_index == 7
    machine.abandon()
