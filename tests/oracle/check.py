"""The check: at every frontier the view equals the answer of a batch.

Spark answers        equal rows, values and types; no error shown
Spark raises         an error is shown, or the rows are those of the lenient text that the case gives
DuckDB answers       equal rows (only for texts on which the two engines agree by definition)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.oracle.harness import Updates, contents
from tests.oracle.histories import Table
from tests.oracle.reference import Answer
from tidemark_protocol.plan.lir import Plan

DIGITS = 12


@dataclass(frozen=True)
class Case:
    """A query, the tables it reads, and what is known about it.

    `plan`: LIR to be used in the place of the planner's. `spark`: the text for Spark, where for `sql` Spark answers
    something that SQL does not say. `duckdb`: the text for DuckDB, `"same"` for the same.
    `lenient`: the text that says what is shown where Spark raises and no error is shown. `in_files`: the batch is over
    tables in files (reference.py). `tick`: milliseconds between changes, for one that reads the clock.
    """

    name: str
    sql: str
    tables: Mapping[str, Table]
    plan: Plan | None = None
    duckdb: str | None = None
    spark: str | None = None
    lenient: str | None = None
    in_files: bool = False
    changes: int = 5
    tick: int = 0


class Wrong(AssertionError):
    """The view shows other rows than it should."""


def check_answers(
    case: Case, updates: Updates, spark: Mapping[int, Answer], duck: Mapping[int, Answer], lenient: Mapping[int, Answer]
) -> None:
    """Raise Wrong at the first frontier where something differs."""
    for time, answer in spark.items():
        rows, errors = contents(updates, time)
        where = f"{case.name} at {time}"
        negative = [key for key, n in (*rows.items(), *errors.items()) if n < 0]
        if negative:
            raise Wrong(f"{where}: negative multiplicities of {negative}")
        if answer.rows is not None:
            if errors:
                raise Wrong(f"{where}: Spark answers, but errors are shown: {dict(errors)}")
            _equal(where, rows, answer.rows)
        elif not errors:
            if time not in lenient or lenient[time].rows is None:
                raise Wrong(f"{where}: Spark raises, but no error is shown: {dict(rows)}")
            _equal(f"{where} (lenient)", rows, lenient[time].rows)
        if time in duck and duck[time].rows is not None and not errors:
            _equal(f"{where} (DuckDB)", rows, duck[time].rows)


def _equal(where: str, found: Mapping[Any, int], expected: Mapping[Any, int] | None) -> None:
    left, right = rounded(found), rounded(expected or {})
    if left != right:
        raise Wrong(
            f"{where}: shown but not expected {dict(left - right)}, expected but not shown {dict(right - left)}"
        )


def rounded(rows: Mapping[Any, int]) -> Counter[Any]:
    """Rows with floats to twelve digits: a batch adds up in another order."""
    made: Counter[Any] = Counter()
    for row, n in rows.items():
        made[tuple(_rounded_value(v) for v in row)] += n
    return made


def _rounded_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_rounded_value, value))
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value
