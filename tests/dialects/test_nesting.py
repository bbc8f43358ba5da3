"""Texts whose parse would take as long as 2 to the power of their depth are refused by their tokens."""

from __future__ import annotations

import time

import pytest

from tidemark_planner.dialects.foreign_text import DIALECTS, as_spark_text
from tidemark_planner.dialects.nesting import MAX_TYPES, check_nesting
from tidemark_planner.errors import Refusal

CPU_S = 5.0


def nested(called: str, times: int) -> str:
    return f"SELECT 1,\n  {f'{called}(' * times}1{')' * times} AS x"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("called", ["int", "date", "decimal", "struct"])
def test_calls_of_types_in_one_another_are_refused_at_their_position(dialect: str, called: str) -> None:
    before = time.process_time()
    with pytest.raises(Refusal) as refused:
        as_spark_text(nested(called, 40), dialect, lambda parts, line, column: ())
    assert time.process_time() - before < CPU_S
    (diagnostic,) = refused.value.diagnostics
    at = 3 + MAX_TYPES * (len(called) + 1)
    assert (diagnostic.code, diagnostic.line, diagnostic.column, diagnostic.word) == ("TOO_LARGE", 2, at, called)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + ", ".join(["CAST(1 AS decimal(5, 2))"] * 100),
        nested("lower", 100),
        "(" * 50_000 + "int(1)," * 50_000,
    ],
)
def test_types_beside_one_another_and_deep_calls_are_read(text: str) -> None:
    """None takes longer than its length."""
    before = time.process_time()
    check_nesting(text, "postgres")
    assert time.process_time() - before < CPU_S
