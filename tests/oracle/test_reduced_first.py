"""Whether an aggregate of a join is taken before it does not show: rows, values, types and errors are those of a batch,
and the updates those of the aggregate after the join.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest

from tests.oracle.cases import CASES
from tests.oracle.check import Case, rounded
from tests.oracle.harness import contents
from tests.oracle.histories import History, Table, random_bounds, random_history
from tests.oracle.oracle import Oracle
from tests.oracle.reference import duckdb_answers
from tests.oracle.seeds import FEW, seeds
from tests.oracle.tables import TU, U
from tests.oracle.variants.in_process import in_process
from tests.oracle.variants.reduced_first import any_of, never, reduced_first, wherever_possible
from tidemark_replica.arrangement import numbers
from tidemark_replica.kernels.reduce import aggregates

pytestmark = pytest.mark.spark
_JOINED = [
    c for c in CASES if c.plan is None and ("JOIN" in c.sql or "," in c.sql) and ("(" in c.sql or "DISTINCT" in c.sql)
]

QUERIES = {
    "groups of the other": "SELECT u.d, sum(t.b * 1.0) AS x, count(*) AS n FROM t JOIN u ON t.a = u.a GROUP BY u.d",
    "many to many": "SELECT x.s, sum(y.b * 1.0) AS x, count(y.b) AS n FROM t x JOIN t y ON x.a = y.a GROUP BY x.s",
    "both sides' groups": "SELECT t.s, u.d, max(t.b) AS x, min(t.b) AS y FROM t JOIN u ON t.a = u.a GROUP BY t.s, u.d",
    "one group": "SELECT sum(t.b * 1.0) AS x, count(*) AS n, count(t.b) AS c, max(t.s) AS m FROM t JOIN u ON t.a = u.a",
    "filtered": "SELECT u.d, count(*) FILTER (WHERE t.b > 0) AS n, sum(t.b * 1.0) FILTER (WHERE t.s = 'x') AS x "
    "FROM t JOIN u ON t.a = u.a WHERE t.b < u.d GROUP BY u.d",
    "decimals": "SELECT u.d, sum(t.b * CAST(2 AS decimal(3,0))) AS x, sum(t.b * 1.0) AS y "
    "FROM t JOIN u ON t.a = u.a GROUP BY u.d",
    "a part of what is read": "SELECT u.d, sum(t.b * 1.0) AS x FROM t JOIN u ON t.a = u.a AND t.b < u.d "
    "WHERE t.s <> 'y' OR u.d > 1 GROUP BY u.d",
    "truths": "SELECT u.d, bool_and(t.b > 0) AS x, bool_or(t.b > 0) AS y FROM t JOIN u ON t.a = u.a GROUP BY u.d",
    "by an expression": "SELECT coalesce(u.d, -1) + t.a AS k, count(t.s) AS n "
    "FROM t JOIN u ON t.a IS NOT DISTINCT FROM u.a GROUP BY k",
    "distinct rows": "SELECT DISTINCT u.d FROM t JOIN u ON t.a = u.a",
    "three": "SELECT u.d, sum(x.b * 1.0) AS x, count(*) AS n FROM t x JOIN u ON x.a = u.a JOIN t y ON u.a = y.a "
    "GROUP BY u.d",
    "having": "SELECT u.d, sum(t.b * 1.0) AS x FROM t JOIN u ON t.a = u.a GROUP BY u.d HAVING count(*) > 2",
}

# The key 4 meets nothing.
LARGE = Table(
    (("a", "bigint"), ("b", "int"), ("m", "decimal(28,2)")),
    ([1, 2, 4], [2**31 - 1, -(2**31), -1, None], [Decimal("9" * 26 + ".99"), Decimal("-" + "9" * 26), None]),
)
OF_LARGE = Case(
    "sums of large numbers",
    "SELECT u.a % 2 AS k, sum(l.b) AS b, sum(l.m) AS m, count(*) AS n FROM l JOIN u ON l.a = u.a GROUP BY u.a % 2",
    {"l": LARGE, "u": U},
)


def test_oracle_sums_of_large_numbers_do_not_overflow(oracle: Oracle, tmp_path: Path) -> None:
    for seed in seeds(6):
        history = random_history(OF_LARGE.tables, seed, changes=12)
        shown = []
        with in_process(tmp_path / str(seed), OF_LARGE.tables, history) as of:
            for choose in (never, wherever_possible):
                with reduced_first(choose) as chosen:
                    updates = of.run(oracle.describe(OF_LARGE, of), random_bounds(history, seed))
                assert bool(chosen) == (choose is wherever_possible)
                of_times = (contents(updates, time) for time in history.times)
                shown.append([(rows, len(errors)) for rows, errors in of_times])
        assert shown[0] == shown[1]
        assert not any(errors for _, errors in shown[0])


def test_oracle_rows_that_meet_nothing_are_no_group(
    oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An equality never joins rows without a key. There may be more of them than a group may have."""
    for module in (numbers, aggregates):
        monkeypatch.setattr(module, "MAX_ROWS", 5)
    rows = (*(((None, n, "x"), 1, 1) for n in range(9)), ((1, 7, "x"), 1, 1))
    history = History({"t": rows, "u": (((1, None), 1, 1), ((None, None), 1, 1))}, 1, 2)
    shown = {}
    with in_process(tmp_path, TU, history) as of, reduced_first(wherever_possible) as chosen:
        for compared in ("=", "<=>"):
            sql = f"SELECT u.a, sum(t.b * 1.0) AS x FROM t JOIN u ON t.a {compared} u.a GROUP BY u.a"
            shown[compared] = contents(of.run(oracle.describe(Case("no key", sql, TU), of), [3]), 2)
    assert chosen
    assert shown["="] == (Counter({(1, Decimal(7)): 1}), Counter())
    assert shown["<=>"][1], "rows without a key are a group of more rows than a group may have"


@pytest.mark.broad
@pytest.mark.parametrize("seed", seeds(FEW))
@pytest.mark.parametrize("case", _JOINED, ids=lambda case: case.name)
def test_oracle_every_case_with_aggregates_before_joins(oracle: Oracle, case: Case, seed: int, tmp_path: Path) -> None:
    """Every case whose plan this changes: at every frontier the view shows what a batch answers."""
    history = random_history(case.tables, seed, changes=1)
    with in_process(tmp_path, case.tables, history) as of, reduced_first(wherever_possible) as chosen:
        oracle.describe(case, of)
    if not chosen:
        pytest.skip("no aggregate of a join can be taken before it")
    with reduced_first(wherever_possible):
        oracle.check(case, seed, tmp_path)


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("name", QUERIES)
def test_oracle_no_aggregate_before_a_join_shows(oracle: Oracle, tmp_path: Path, name: str, seed: int) -> None:
    """Any input first: the updates of the aggregate after the join, and at each frontier DuckDB's rows."""
    case = Case(name, QUERIES[name], TU)
    history = random_history(TU, seed, changes=case.changes)
    with in_process(tmp_path, TU, history) as of:
        with reduced_first(never):
            plain = oracle.describe(case, of)
        updates = of.run(plain, random_bounds(history, seed))
        for time, answer in duckdb_answers(case.sql, TU, history).items():
            rows, errors = contents(updates, time)
            assert not errors
            assert rounded(rows) == rounded(answer.rows), f"{case.sql} at {time}"
        for choose in (wherever_possible, any_of(Random(seed))):
            with reduced_first(choose) as chosen:
                other = oracle.describe(case, of)
            assert chosen, "no aggregate was taken before a join"
            assert other.objects != plain.objects
            assert of.run(other, random_bounds(history, seed + 1)) == updates, f"{case.sql}: {other}"
