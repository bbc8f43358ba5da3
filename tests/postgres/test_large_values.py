"""A large value of a change takes some times its bytes in memory, and not dozens."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from tidemark_replica.storage.postgres.pgoutput import BODY
from tidemark_replica.storage.postgres.values import tuples
from tidemark_replica.storage.postgres.values.tuples import decode


def insert(*values: bytes | None) -> bytes:
    """The message of an insert into table 7."""
    texts = (b"n" if value is None else b"t" + struct.pack(">I", len(value)) + value for value in values)
    return b" " * BODY + b"I" + struct.pack(">I", 7) + b"N" + struct.pack(">H", len(values)) + b"".join(texts)


def test_a_large_value_is_copied_and_not_gathered() -> None:
    size = 16 << 20
    messages = [insert(b"1", b"a"), insert(b"2", b"x" * size), insert(b"3", None)]
    tracemalloc.start()
    (rows, diff), *others = decode(messages, 2)
    texts = rows.texts(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (diff, others) == (1, [])
    assert peak < 4 * size
    assert texts[0].as_py() == "a"
    assert texts[1].as_py() == "x" * size
    assert texts[2].as_py() is None


def test_split_gathers_of_any_number_of_rows_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [bytes(97 + (i * j) % 26 for j in range(i % 7)) for i in range(200)]
    messages = [insert(value, None if i % 5 == 0 else value * 3) for i, value in enumerate(values)]
    expected = [[v.decode() for v in values], [None if i % 5 == 0 else v.decode() * 3 for i, v in enumerate(values)]]
    for share in (1, 7, 64, 1 << 20):
        monkeypatch.setattr(tuples, "GATHER_BYTES", share)
        ((rows, _),) = decode(messages, 2)
        assert [rows.texts(column).to_pylist() for column in range(2)] == expected
