"""Texts of PostgreSQL as Arrow values, against Python's own reading of each text."""

from __future__ import annotations

import random
import string
from typing import Any

import pyarrow as pa
import pytest

from tidemark_replica.storage.postgres.values.text_values import parse

UTC = pa.timestamp("us", "UTC")
LIST = pa.list_(pa.field("element", pa.int32()))
TEXTS = pa.list_(pa.field("element", pa.string()))
CASES: list[tuple[pa.DataType, list[str | None], list[Any], list[int]]] = [
    (pa.bool_(), ["t", "f", None], [True, False, None], []),
    (pa.int16(), ["-32768", "7", None], [-32768, 7, None], []),
    (pa.float64(), ["-Infinity", "1e-300", None], [float("-inf"), 1e-300, None], []),
    (pa.decimal128(4, 2), ["1.50", "NaN", None, "-0.01"], ["1.50", None, None, "-0.01"], [1]),
    (
        pa.date32(),
        ["infinity", "10000-01-01", "0044-03-15 BC", "2020-02-29"],
        [None, None, None, "2020-02-29"],
        [0, 1, 2],
    ),
    (UTC, ["-infinity", None, "2020-01-01 00:00:00.000001+00"], [None, None, "2020-01-01 00:00:00.000001+00:00"], [0]),
    (pa.binary(), [r"\x", r"\x00ff", None, r"\xab"], [b"", b"\x00\xff", None, b"\xab"], []),
    (LIST, ["{}", "{1,NULL,-3}", None, "{{1},{2}}", "[0:1]={1,2}"], [[], [1, None, -3], None, None, None], [3, 4]),
    (LIST, ["{}", None, "{5}"], [[], None, [5]], []),
    (TEXTS, ['{a,"NULL",NULL,"b c","\\"\\\\",""}'], [["a", "NULL", None, "b c", '"\\', ""]], []),
]


@pytest.mark.parametrize(("type", "texts", "values", "unreadable"), CASES, ids=str)
def test_texts_are_values_or_unreadable(
    type: pa.DataType, texts: list[Any], values: list[Any], unreadable: list[int]
) -> None:
    """Also of a slice, whose buffers begin elsewhere."""
    for array in (pa.array(texts, pa.string()), pa.array(["{1}", *texts], pa.string()).slice(1)):
        parsed, wrong = parse(array, type)
        found = parsed.to_pylist()
        shown = [
            v if w is None or isinstance(v, bool | bytes | list | int | float) else str(v)
            for v, w in zip(found, values, strict=True)
        ]
        assert (parsed.type, shown) == (type, values)
        assert [i for i, w in enumerate(wrong.to_pylist() if wrong is not None else []) if w] == unreadable


def test_oracle_arrays_of_texts() -> None:
    """Elements with every character that PostgreSQL quotes."""
    draw = random.Random(7)
    for _ in range(300):
        rows = [
            [
                draw.choice([None, "", "NULL", "".join(draw.choices(string.printable + '"\\{},é', k=4))])
                for _ in range(3)
            ]
            for _ in range(draw.randrange(4))
        ]
        parsed, wrong = parse(pa.array([literal(row) for row in rows], pa.string()), TEXTS)
        assert (parsed.to_pylist(), wrong) == (rows, None)


def literal(row: list[str | None]) -> str:
    """The literal as array_out prints it, with quotes around everything but NULL."""
    quoted = ("NULL" if e is None else '"' + e.replace("\\", "\\\\").replace('"', '\\"') + '"' for e in row)
    return "{" + ",".join(quoted) + "}"
