"""The order of a join's inputs does not show: the chosen one, the worst one and random ones give the same updates.

Random joins of three and four inputs, over random histories, without Spark jobs; DuckDB says what is right.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.oracle.check import Case, rounded
from tests.oracle.harness import contents
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.oracle import Oracle
from tests.oracle.reference import duckdb_answers
from tests.oracle.seeds import seeds
from tests.oracle.tables import TU
from tests.oracle.variants.in_process import in_process
from tests.oracle.variants.join_orders import forced, orders
from tidemark_protocol.plan.dataflow import DataflowDescription

pytestmark = [pytest.mark.spark, pytest.mark.broad]

# Each has columns `a` and `n`; the groups have a unique key.
INPUTS = (
    "(SELECT a, b AS n FROM t)",
    "(SELECT a, b AS n FROM t WHERE s = 'x')",
    "(SELECT a, a AS n FROM u WHERE d > 0)",
    "(SELECT a, count(*) AS n FROM t GROUP BY a)",
    "(SELECT a, count(d) AS n FROM u GROUP BY a)",
    "(SELECT DISTINCT a, b AS n FROM t WHERE a = 1)",
)
# Of one row at most: with these planning may begin.
ROWS = (
    "(SELECT coalesce(max(a), 1) AS a, 1 AS n FROM u)",
    "(SELECT count(d) AS a, count(*) AS n FROM u)",
)


def random_join(random: Random) -> str:
    """Inputs that equalities connect as a tree, and perhaps by more of them; some are of expressions. Most have an
    input of one row, which is not the first one of the query.
    """
    names = "wxyz"[: random.choice((3, 3, 4))]
    on = []
    for at, name in enumerate(names[1:], start=1):
        other, column = random.choice(names[:at]), random.choice("aan")
        on.append(f"{other}.{column} {random.choice(('=', '=', 'IS NOT DISTINCT FROM'))} {name}.a")
        if random.random() < 0.3:
            on.append(f"{random.choice(names[:at])}.n {random.choice(('=', '<'))} {name}.n")
    if random.random() < 0.3:
        on.append(f"coalesce({names[0]}.n, 0) = coalesce({names[-1]}.n, 0)")
    shown = ", ".join(f"{name}.a AS {name}a, {name}.n AS {name}n" for name in names)
    inputs = [random.choice(INPUTS) for _ in names]
    if random.random() < 0.8:
        inputs[random.randrange(1, len(names))] = random.choice(ROWS)
    return f"SELECT {shown} FROM {', '.join(map(' '.join, zip(inputs, names, strict=True)))} WHERE {' AND '.join(on)}"


@pytest.mark.parametrize("seed", seeds(8))
def test_oracle_no_order_of_a_join_shows(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    """Linear and delta joins, from any input on: the same updates, and at each frontier DuckDB's rows."""
    random = Random(seed)
    case = Case(f"join {seed}", random_join(random), TU, duckdb="same")
    history = random_history(TU, seed, changes=case.changes)
    with in_process(tmp_path, TU, history) as of:
        chosen = oracle.describe(case, of)
        updates = of.run(chosen, random_bounds(history, seed))
        for time, answer in duckdb_answers(case.sql, TU, history).items():
            rows, errors = contents(updates, time)
            assert not errors
            assert rounded(rows) == rounded(answer.rows), f"{case.sql} at {time}"
        others = set[DataflowDescription]()
        for choose, first, by_paths in orders(random):
            with forced(choose, first, by_paths):
                others.add(other := oracle.describe(case, of))
            assert of.run(other, random_bounds(history, seed + 1)) == updates, f"{case.sql}: {other}"
        assert others != {chosen}, "no order was forced"


FAILING = """
    SELECT x.b, 10 div y.b AS q FROM t x, u, t y, (SELECT a, 10 div count(d) AS n FROM u GROUP BY a) g
    WHERE x.a = u.a AND u.a = y.a AND y.a = g.a AND 10 div x.b > -3
"""


@pytest.mark.parametrize("seed", seeds(2))
def test_agree_errors_do_not_depend_on_the_order(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    """The orders are of inputs, of conditions and of columns: the same ones, as often."""
    case, random = Case("failing", FAILING, TU), Random(seed)
    history = random_history(TU, seed, changes=8)
    with in_process(tmp_path, TU, history) as of:
        updates = of.run(oracle.describe(case, of), random_bounds(history, seed))
        assert any(error for _, error, _ in updates)
        for choose, first, by_paths in orders(random):
            with forced(choose, first, by_paths):
                other = oracle.describe(case, of)
            assert of.run(other, random_bounds(history, seed + 1)) == updates, f"{other}"
