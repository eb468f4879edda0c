"""Store the history of tasks as Parquet files with a proof of completeness.

A journal is a folder::

    _journal.json                       feed, start position and format
    _manifests/raw/000000000042.json    content of batch 42, once it is published
    raw/batch=000000000042/date=2026-09-21/part-*.parquet
    _checkpoint/                        Spark's checkpoint; never delete it alone
    _lock                               held by the program that exports into the folder

Each event is stored exactly once for three reasons. Spark's checkpoint fixes the range of a batch
before the batch is read. A batch that is repeated after a crash overwrites only unpublished files.
A manifest is published in one step, once. Completeness can be computed, because the sequence
numbers of the feed have no gaps.
"""
