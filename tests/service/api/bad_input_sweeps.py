"""Invalid input of the methods of bulk sweeps."""

from taskraft.v1 import bulk_sweep_pb2

INVALID = "INVALID_FIELD"
IMPLEMENTED = {"StartBulkSweep", "GetBulkSweep", "ListBulkSweeps", "StopBulkSweep"}


def bulk_sweep(tube="emails", action=1, **fields):
    return bulk_sweep_pb2.StartBulkSweepRequest(tube=tube, action=action, **fields)


CASES = (
    ("StartBulkSweep", bulk_sweep(tube="a b"), INVALID),
    ("StartBulkSweep", bulk_sweep(action=0), INVALID),
    ("StartBulkSweep", bulk_sweep(action=99), INVALID),
    ("StartBulkSweep", bulk_sweep(filter="atempt > 1"), INVALID),
    ("StartBulkSweep", bulk_sweep(filter="x" * 1_901), INVALID),
    ("StartBulkSweep", bulk_sweep(filter="id > 1", ids=[1]), INVALID),
    ("StartBulkSweep", bulk_sweep(ids=[0]), INVALID),
    ("StartBulkSweep", bulk_sweep(ids=[1] * 10_001), INVALID),
    ("StartBulkSweep", bulk_sweep(move_to="other"), INVALID),
    ("StartBulkSweep", bulk_sweep(bury_reason="why"), INVALID),
    ("StartBulkSweep", bulk_sweep(action=5), INVALID),
    ("StartBulkSweep", bulk_sweep(action=5, move_to="gone"), "TUBE_NOT_FOUND"),
    ("StartBulkSweep", bulk_sweep(rate_per_second=10_001), INVALID),
    ("StartBulkSweep", bulk_sweep(tube="gone"), "TUBE_NOT_FOUND"),
    ("GetBulkSweep", bulk_sweep_pb2.GetBulkSweepRequest(number=7), "BULK_SWEEP_NOT_FOUND"),
    ("StopBulkSweep", bulk_sweep_pb2.StopBulkSweepRequest(number=7), "BULK_SWEEP_NOT_FOUND"),
    ("ListBulkSweeps", bulk_sweep_pb2.ListBulkSweepsRequest(page_size=-1), INVALID),
    ("ListBulkSweeps", bulk_sweep_pb2.ListBulkSweepsRequest(page_token="?"), INVALID),
)
