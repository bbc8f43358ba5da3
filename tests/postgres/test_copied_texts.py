"""Texts that COPY prints are read by Arrow as they are, wherever its blocks end."""

from __future__ import annotations

import csv
import io

import pytest

from tidemark_replica.storage.postgres import snapshot

ROWS = [["xx\r\nyy", "1"], ["\r\n", ""], ["\r\r\n\n\r", "2"], ["é\r\n\ufeff", "3"]] * 4


def read(text: str, names: list[str], block: int = 4096) -> list[list[str | None]]:
    batches = snapshot._csv_batches(io.BytesIO(text.encode()), names, block)
    return [list(row.values()) for batch in batches for row in batch.to_pylist()]


def printed(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("block", range(24, 120))
def test_line_ends_in_values_at_borders_of_blocks(block: int) -> None:
    assert read(printed(ROWS), ["a", "b"], block) == ROWS


@pytest.mark.parametrize("block", [16, 4096])
@pytest.mark.parametrize("text", ["\ufeffabc", "\ufeff", "\ufeff\ufeffx", "abc"])
def test_a_first_value_that_begins_with_a_byte_order_mark(text: str, block: int) -> None:
    assert read(f"{text}\n{text}\n", ["a"], block) == [[text], [text]]


@pytest.mark.parametrize(("text", "rows"), [("", []), ("\n", [[None]]), ("\n\n", [[None], [None]])])
def test_no_row_and_rows_that_are_null(text: str, rows: list[list[str | None]]) -> None:
    assert read(text, ["a"]) == rows
