"""Frames that are malformed end their connection, with an error where one can be told, and never the process."""

from __future__ import annotations

import os
import random
import socket
import struct

import pytest

from tests.pgwire.frames import Frames
from tests.pgwire.served import ONE, Served
from tidemark_pgwire.errors import ClientProtocolError
from tidemark_pgwire.messages.frontend import decode, decode_startup

SEED = int(os.environ.get("TIDEMARK_FUZZ_SEED", "20261126"))
GOOD = (
    (b"Q", b"SELECT a FROM s.a\0"),
    (b"P", b"\0SELECT a FROM s.a WHERE a = $1\0\0\x01\0\0\0\x17"),
    (b"B", b"\0\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01"),
    (b"D", b"P\0"),
    (b"D", b"S\0"),
    (b"E", b"\0\0\0\0\0"),
    (b"C", b"S\0"),
    (b"S", b""),
    (b"H", b""),
)


def garbled(choice: random.Random, data: bytes) -> bytes:
    """The bytes with a few changes."""
    changed = bytearray(data)
    for _ in range(choice.randint(1, 4)):
        at = choice.randrange(len(changed) + 1)
        match choice.randrange(4):
            case 0 if changed:
                changed[min(at, len(changed) - 1)] = choice.randrange(256)
            case 1:
                changed[at:at] = choice.randbytes(choice.randint(1, 4))
            case 2:
                del changed[at : at + choice.randint(1, 4)]
            case 3 if changed:
                changed[min(at, len(changed) - 1)] ^= 1 << choice.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_decoders_refuse_or_understand(count: int) -> None:
    """Nothing but a ClientProtocolError comes of any bytes."""
    choice = random.Random(SEED)
    starts = [struct.pack("!I", code) + b"user\0a\0database\0b\0\0" for code in (3 << 16, 80877102, 80877103, 2 << 16)]
    refused = 0
    for _ in range(count):
        kind, body = choice.choice(GOOD)
        try:
            decode(bytes([choice.randrange(256)]) if not choice.randrange(9) else kind, garbled(choice, body))
            decode_startup(garbled(choice, choice.choice(starts)))
        except ClientProtocolError:
            refused += 1
    assert 0 < refused < count


@pytest.mark.parametrize("count", [60, pytest.param(3_000, marks=pytest.mark.slow)])
def test_connections_of_garbled_frames_end_or_go_on(server: Served, count: int) -> None:
    """Over real connections; the last client is answered as the first."""
    choice = random.Random(SEED)
    server.says(lambda sql, dialect: ONE)
    for _ in range(count):
        with Frames(server) as frames:
            stream = b"".join(
                kind + struct.pack("!I", len(body) + 4) + body for kind, body in choice.choices(GOOD, k=6)
            )
            try:
                frames.socket.sendall(garbled(choice, stream))
                frames.send(b"X")
                with socket.socket(fileno=os.dup(frames.socket.fileno())) as below:
                    below.shutdown(socket.SHUT_WR)  # that of an SSLSocket ends TLS in both directions
                assert frames.rest()[:1] in (b"", b"E", b"T", b"1", b"2", b"n", b"I", b"Z", b"t", b"3", b"S", b"N")
            except OSError:
                pass
    with server.connect() as connection:
        assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"?", b""),
        (b"Q", b"SELECT 1"),
        (b"Q", b"SELECT 1\0more\0"),
        (b"Q", b"\xff\0"),
        (b"B", b"\0\0\0\0\xff\xff"),
        (b"B", b"\0\0\0\0\0\x01\x7f\xff\xff\xff"),
        (b"B", b"\0\0\0\x01\0\x07\0\0\0\0"),
        (b"D", b"X\0"),
        (b"F", b"\0\0\0\0"),
    ],
)
def test_a_malformed_message_is_told_and_ends_the_connection(server: Served, kind: bytes, body: bytes) -> None:
    with Frames(server) as frames:
        frames.send(kind, body)
        rest = frames.rest()
    assert rest[:1] == b"E"
    assert b"08P01" in rest
    assert b"FATAL" in rest


@pytest.mark.parametrize("size", [0, 3, 2**31, 2**20 + 1])
def test_the_length_of_a_message_is_bounded(server: Served, size: int) -> None:
    with Frames(server) as frames:
        frames.socket.sendall(b"Q" + struct.pack("!I", size))
        assert b"invalid message length" in frames.rest()
