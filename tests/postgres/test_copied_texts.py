"""Texts that COPY prints are read by Arrow as they are, and at once as values of the columns' types."""

from __future__ import annotations

import csv
import io
import random
from typing import Any

import pyarrow as pa
import pytest

from tests.postgres.test_text_values import CASES
from tidemark_persist import ERROR
from tidemark_protocol.ids import Time
from tidemark_replica.storage.postgres.contents.copied_rows import parsed
from tidemark_replica.storage.postgres.values.updates import updates

ROWS = [["xx\r\nyy", "1"], ["\r\n", ""], ["\r\r\n\n\r", "2"], ["é\r\n\ufeff", "3"], ["\r", "4"]]


def read(text: str, names: list[str]) -> list[list[Any]]:
    schema = pa.schema([pa.field(name, pa.string()) for name in names])
    return [list(row) for row in zip(*(array.to_pylist() for array in parsed(text.encode(), schema)), strict=True)]


def printed(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue()


def test_line_ends_in_values_at_borders_of_rows() -> None:
    draw = random.Random(3)
    for _ in range(100):
        rows = draw.choices(ROWS, k=draw.randrange(1, 9))
        assert read(printed(rows), ["a", "b"]) == rows


@pytest.mark.parametrize("text", ["\ufeffabc", "\ufeff", "\ufeff\ufeffx", "abc"])
def test_a_first_value_that_begins_with_a_byte_order_mark(text: str) -> None:
    assert read(f"{text}\n{text}\n", ["a"]) == [[text], [text]]


@pytest.mark.parametrize(("text", "rows"), [("\n", [[None]]), ("\n\n", [[None], [None]]), ('""\n', [[""]])])
def test_rows_that_are_null_or_empty(text: str, rows: list[list[str | None]]) -> None:
    assert read(text, ["a"]) == rows


def test_a_value_that_is_as_long_as_many_blocks() -> None:
    assert read("x" * (3 << 20) + "\n", ["a"]) == [["x" * (3 << 20)]]


@pytest.mark.parametrize(("type", "texts"), [case[:2] for case in CASES], ids=str)
@pytest.mark.parametrize("is_one_unreadable", [False, True])
def test_agree_values_of_a_block_and_of_its_texts(
    type: pa.DataType, texts: list[str | None], is_one_unreadable: bool
) -> None:
    """A block that Arrow reads as values, and one that it reads as texts because of one value."""
    schema = pa.schema([pa.field("a", type), pa.field("b", pa.date32())])
    day = "infinity" if is_one_unreadable else "2020-01-01"
    wanted = updates([pa.array(texts, pa.string()), pa.array([day] * len(texts), pa.string())], schema, 1, Time(1))
    for some in (texts, [text for text, error in zip(texts, wanted.column(ERROR), strict=True) if not error.is_valid]):
        rows = [["" if text is None else '"' + text.replace('"', '""') + '"', day] for text in some]
        block = "".join(",".join(row) + "\n" for row in rows).encode()
        if block:
            found = updates(parsed(block, schema), schema, 1, Time(1))
            again = [pa.array(some, pa.string()), pa.array([day] * len(some), pa.string())]
            assert found.equals(updates(again, schema, 1, Time(1)))
