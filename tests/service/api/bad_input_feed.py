"""Invalid input of the methods of the change feed."""

from taskraft.v1 import feed_service_pb2

INVALID = "INVALID_FIELD"
IMPLEMENTED = {
    *("DescribeFeed", "WatchFeed", "ReadChanges", "ResolveTimestamp", "CommitCursor"),
    *("GetTaskEvents", "OpenTaskSnapshot", "ReadTaskSnapshot"),
}


def commit(next_seq=None, consumer="c", idle_ttl_ms=0, **cursor):
    return feed_service_pb2.CommitCursorRequest(
        consumer=consumer,
        cursor=feed_service_pb2.FeedCursor(next_seq=next_seq or {}, **cursor),
        idle_ttl_ms=idle_ttl_ms,
    )


CASES = (
    ("GetTaskEvents", feed_service_pb2.GetTaskEventsRequest(tube="a b"), INVALID),
    ("OpenTaskSnapshot", feed_service_pb2.OpenTaskSnapshotRequest(keep_ms=-1), INVALID),
    ("ReadTaskSnapshot", feed_service_pb2.ReadTaskSnapshotRequest(tube="a b"), INVALID),
    (
        "ReadTaskSnapshot",
        feed_service_pb2.ReadTaskSnapshotRequest(tube="emails", snapshot_id="unknown"),
        "SNAPSHOT_NOT_FOUND",
    ),
    ("WatchFeed", feed_service_pb2.WatchFeedRequest(wait_ms=-1), INVALID),
    (
        "WatchFeed",
        feed_service_pb2.WatchFeedRequest(cursor=feed_service_pb2.FeedCursor(feed_id="other")),
        "FEED_MISMATCH",
    ),
    ("ResolveTimestamp", feed_service_pb2.ResolveTimestampRequest(at_ms=-1), INVALID),
    ("CommitCursor", commit(consumer=""), INVALID),
    ("CommitCursor", commit(consumer="x" * 129), INVALID),
    ("CommitCursor", commit(idle_ttl_ms=-1), INVALID),
    ("CommitCursor", commit(idle_ttl_ms=400 * 86_400_000), INVALID),
    ("CommitCursor", commit({-1: 0}), INVALID),
    ("CommitCursor", commit({0: -1}), INVALID),
    ("CommitCursor", commit({0: 10**6}), INVALID),
    ("CommitCursor", commit({99: 0}), INVALID),
    ("CommitCursor", commit(feed_id="other"), "FEED_MISMATCH"),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(partition=99), INVALID),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(from_seq=-1), INVALID),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(from_seq=5, to_seq=2), INVALID),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(chunk_bytes_max=1), INVALID),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(encoding=9), INVALID),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(tubes=["a b"]), INVALID),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(kinds=[0]), INVALID),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(kinds=[1, 99]), INVALID),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(columns=["kind"]), INVALID),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(encoding=2, columns=["texts"]), INVALID),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(feed_id="other"), "FEED_MISMATCH"),
    ("ReadChanges", feed_service_pb2.ReadChangesRequest(from_seq=10**6), "NODE_BEHIND"),
)
