"""The benchmark of decoding uses chunks that the pipeline accepts."""

from bench.chunk_decoding import columns_of, from_messages, messages_of
from taskraft.v1 import feed_service_pb2 as pb
from taskraft_pipeline.codec import record_batch
from taskraft_pipeline.schema import COLUMNS


def test_the_chunk_of_columns_has_every_column_of_the_schema():
    chunk = pb.ReadChangesResponse(next_seq=50, rows=50, columns=columns_of(50))
    batch = record_batch(chunk, tuple(COLUMNS))
    assert batch.num_rows == 50
    assert batch.schema.names == list(COLUMNS)
    assert batch.column("tube").null_count == 0


def test_the_chunk_of_messages_has_as_many_rows():
    assert from_messages(messages_of(50)).num_rows == 50
