"""Where the tuples of COPY in binary are, in data that have many places which look like tuples."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from tidemark_pgwire.writes import tuples as room
from tidemark_pgwire.writes.tuples import NULL_SIZE, tuples

Found = tuple[list[list[tuple[int, int]]], int]


def one_by_one(data: bytes, columns: int) -> Found:
    """The begin and the size of each field, by column; and the end."""
    fields: list[list[tuple[int, int]]] = [[] for _ in range(columns)]
    end = 0
    while True:
        at, row = end + 2, list[tuple[int, int]]()
        if data[end:at] != struct.pack("!H", columns):
            return fields, end
        for _ in range(columns):
            if at + 4 > len(data):
                return fields, end
            size = struct.unpack_from("!i", data, at)[0]
            row.append((at + 4, size))
            at += 4 + max(size, 0)
            if size < NULL_SIZE or at > len(data):
                return fields, end
        for field, each in zip(fields, row, strict=True):
            field.append(each)
        end = at


def places_of(data: bytes, columns: int) -> Found:
    fields, end = tuples(pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)]), columns)
    return [list(zip(f.starts.to_pylist(), f.sizes.to_pylist(), strict=True)) for f in fields], end


@pytest.mark.parametrize("seed", range(200))
def test_oracle_random_tuples(seed: int) -> None:
    """Values that look like tuples, whole ones and ones that are cut or spoiled; both ways to find them."""
    choice = random.Random(seed)
    columns = choice.choice([1, 2, 3, 256, 257])
    like = choice.choice([struct.pack("!H", columns), struct.pack("!Hi", columns, 2), b"\0", b"ab"])
    data = b""
    for _ in range(choice.randrange(1, 30)):
        values = [choice.choice([None, like * choice.randrange(20)]) for _ in range(columns)]
        data += struct.pack("!H", columns)
        data += b"".join(struct.pack("!i", -1 if v is None else len(v)) + (v or b"") for v in values)
    data = data[: choice.choice([len(data), choice.randrange(len(data) + 1)])]
    if data and choice.random() < 0.3:
        at = choice.randrange(len(data))
        data = data[:at] + bytes([choice.randrange(256)]) + data[at + 1 :]
    expected = one_by_one(data, columns)
    for steps in (0, room.STEPS_MAX, 1 << 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(room, "STEPS_MAX", steps)
            assert places_of(data, columns) == expected


@pytest.mark.parametrize(
    ("columns", "data"),
    [
        (256, (struct.pack("!H", 256) + struct.pack("!ih", 2, 256) * 256) * 50),
        (256, struct.pack("!Hi", 256, 1 << 20) + struct.pack("!Hi", 256, 2) * (1 << 17)),
        (1, struct.pack("!Hi", 1, 1 << 20) + b"\0\1" * (1 << 19)),
        (257, struct.pack("!Hi", 257, 1 << 18) + b"\1" * (1 << 18)),
    ],
)
def test_fields_behind_few_places_are_skipped(columns: int, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another way reads them, as this one takes a step for each place and column."""
    steps, whole = 0, room._complete_tuples

    def counted(data: pa.Array, columns: int, begins: pa.Array) -> Any:
        nonlocal steps
        steps += columns * len(begins)
        return whole(data, columns, begins)

    monkeypatch.setattr(room, "_complete_tuples", counted)
    assert places_of(data, columns) == one_by_one(data, columns)
    assert steps <= len(data)
