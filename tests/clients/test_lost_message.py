"""The proxy of the conformance suite finds each message, however the bytes arrive."""

import pytest

from taskraft.conformance.lost_message import LostMessage, MessageFrames
from taskraft.conformance.program import CaseSkipped

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6


def frame(kind, content=b""):
    return len(content).to_bytes(3, "big") + bytes([kind, 0, 0, 0, 0, 1]) + content


FRAMES = [
    (frame(SETTINGS, b"six by"), False),
    (frame(HEADERS, b"path"), False),
    (frame(DATA, b"first message"), True),
    (frame(PING, b"eight by"), False),
    (frame(DATA, b"second message"), True),
    (frame(DATA), False),
]


@pytest.mark.parametrize("is_request", [True, False])
@pytest.mark.parametrize("size", [1, 7, 9, 1_000])
def test_messages_are_found_in_pieces_of_any_size(is_request, size):
    frames = MessageFrames(is_request=is_request)
    start = [(PREFACE, False)] if is_request else []
    sent = b"".join(each for each, _ in start + FRAMES)
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    assert [each for piece in pieces for each in frames.split(piece)] == start + FRAMES
    assert not frames.is_encrypted


@pytest.mark.parametrize("is_request", [True, False])
def test_an_encrypted_connection_passes_unchanged(is_request):
    frames = MessageFrames(is_request=is_request)
    sent = b"\x16\x03\x01\x02\x00" + b"hello of TLS " * 5
    found = list(frames.split(sent[:20])) + list(frames.split(sent[20:]))
    assert b"".join(each for each, _ in found) == sent
    assert not any(is_message for _, is_message in found)
    assert frames.is_encrypted


def test_one_message_of_one_direction_is_lost():
    lost = LostMessage(is_request=True, number=2)
    assert [lost.is_lost(is_request=is_request) for is_request in (True, False)] == [False, False]
    assert not lost.has_happened
    assert [lost.is_lost(is_request=True) for _ in range(3)] == [True, False, False]
    assert lost.has_happened


def test_a_case_is_skipped_if_messages_cannot_be_seen():
    lost = LostMessage(is_request=False, number=1)
    lost.encrypted()
    with pytest.raises(CaseSkipped):
        _ = lost.has_happened
