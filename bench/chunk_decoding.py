"""Measure the CPU time of decoding changes: columns and messages, into Arrow.

The program prints thousand events per second of CPU time of this process: median, minimum and
maximum of some rounds. Compare only results of the same session; across sessions compare ratios.
`bench.history_read` measures the whole way from real nodes.

    python -m bench.chunk_decoding [--rounds 5]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Final

import numpy as np
import pyarrow as pa

from taskraft.v1 import feed_service_pb2 as pb
from taskraft_pipeline.codec import record_batch
from taskraft_pipeline.schema import COLUMNS

CHUNK_EVENTS: Final = 20_000
"""Maximum number of events in a chunk of columns."""
MESSAGE_EVENTS: Final = 5_000
FEW: Final = ("tube", "kind", "since_ts")
START_MS: Final = 1_780_000_000_000


def columns_of(events: int) -> pb.ChangeColumns:
    """Return columns with 20 tubes and 1 000 other strings, all of them used."""
    rng = np.random.default_rng(1)

    def numbers(kind: str, high: int) -> bytes:
        return rng.integers(1, high, events).astype(kind).tobytes()

    times_ms = START_MS + np.arange(events, dtype="<i8")
    return pb.ChangeColumns(
        revision=np.arange(events, dtype="<i8").tobytes(),
        place=numbers("<i4", 100),
        at_ms=times_ms.tobytes(),
        tube=numbers("<i4", 20),
        tubes=[f"tube-{number}" for number in range(20)],
        task_id=numbers("<i8", 1 << 40),
        kind=numbers("<i1", 5),
        from_state=numbers("<i1", 4),
        to_state=numbers("<i1", 4),
        attempt=numbers("<i4", 4),
        priority=numbers("<i8", 10),
        created_ms=(times_ms - 5_000).tobytes(),
        since_ms=(times_ms - 100).tobytes(),
        subqueue=numbers("<i4", 1_000),
        session=numbers("<i4", 1_000),
        reason=numbers("<i4", 1_000),
        type=numbers("<i4", 1_000),
        payload_bytes=numbers("<i4", 1 << 20),
        outcome=numbers("<i1", 4),
        message=numbers("<i4", 1_000),
        fingerprint=numbers("<i8", 1 << 40),
        target=numbers("<i4", 1_000),
        attempt_failed=numbers("<i1", 2),
        texts=["", *(f"a text of usual length {number}" for number in range(1_000))],
    )


def messages_of(events: int) -> bytes:
    """Return a chunk with similar content as one message per event."""
    chunk = pb.ReadChangesResponse(next_seq=events, rows=events)
    for seq in range(events):
        chunk.events.add(
            seq=seq, revision=seq, place=1, at_ms=START_MS + seq, tube=f"tube-{seq % 20}",
            task_id=seq, kind=pb.ChangeEvent.TAKE, from_state=1, to_state=3, attempt=1,
            priority=5, created_ms=START_MS, since_ms=START_MS, payload_bytes=100,
            subqueue=f"a text of usual length {seq % 1_000}", session=f"consumer-{seq % 9}",
        )  # fmt: skip
    return chunk.SerializeToString()


def measure(title: str, events: int, rounds: int, run: Callable[[], object]) -> None:
    """Print median, minimum and maximum of some rounds, after one warm-up round."""
    run()
    seconds = []
    for _ in range(rounds):
        started = process_time()
        run()
        seconds.append(process_time() - started)
    found = (median(seconds), max(seconds), min(seconds))
    rates = "".join(f"{events / one / 1_000:>10,.0f}" for one in found)
    print(f"{title:<24}{rates}")


def from_messages(data: bytes) -> pa.Table:
    """Build the same table from messages, without the column encoding."""
    chunk = pb.ReadChangesResponse.FromString(data)
    fields = pb.ChangeEvent.DESCRIPTOR.fields
    names = [field.name for field in fields if field.message_type is None]
    return pa.table({name: [getattr(event, name) for event in chunk.events] for name in names})


def measure_codec(rounds: int) -> None:
    """Print the cost of converting bytes into Arrow in one process."""
    chunk = pb.ReadChangesResponse(
        next_seq=CHUNK_EVENTS, rows=CHUNK_EVENTS, columns=columns_of(CHUNK_EVENTS)
    )
    data, messages = chunk.SerializeToString(), messages_of(MESSAGE_EVENTS)

    def decode(columns: tuple[str, ...]) -> None:
        record_batch(pb.ReadChangesResponse.FromString(data), columns)

    everything = tuple(COLUMNS)
    for title, events, run in (
        ("columns to Arrow, all", CHUNK_EVENTS, lambda: decode(everything)),
        ("columns to Arrow, 3", CHUNK_EVENTS, lambda: decode(FEW)),
        ("messages to Arrow", MESSAGE_EVENTS, lambda: from_messages(messages)),
    ):
        measure(title, events, 4 * rounds, run)


def main() -> None:
    """Measure each way of decoding, and print the results."""
    parser = argparse.ArgumentParser(description="Measure how fast changes become rows.")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'1000 events/s':<24}{'median':>10}{'min':>10}{'max':>10}")
    measure_codec(arguments.rounds)


if __name__ == "__main__":
    main()
