"""Keep the history of tasks as Parquet files that can be proved to be complete.

A journal is a folder::

    _journal.json                       which feed, from which position on, how it is written
    _manifests/raw/000000000042.json    what batch 42 holds; a batch without one does not exist
    raw/batch=000000000042/date=2026-09-21/part-*.parquet
    _checkpoint/                        Spark's; belongs to the folder and is never deleted alone
    _lock                               held by the one program that exports into the folder

Exactly once comes from three facts: Spark's checkpoint fixes the range of a batch before it is
read; a batch that is repeated after a crash overwrites what no manifest names yet; and a manifest
is published in one step, once. Completeness is arithmetic, because the feed's numbers are dense.
"""
