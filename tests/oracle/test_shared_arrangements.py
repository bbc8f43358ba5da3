"""Joins that keep an input once, together, give the updates of joins that keep it for each side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle.cases.sharing import QUERIES
from tests.oracle.check import Case
from tests.oracle.harness import DataflowHarness, Updates, consolidated, harness
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.kinds import named
from tests.oracle.oracle import Oracle
from tests.oracle.seeds import seeds
from tests.oracle.tables import TU
from tests.oracle.variants.unshared import kept_apart
from tests.step_worker.shared import step_workers
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, ExportRequest, Planned, PlanRequest, Relation, ViewRequest
from tidemark_protocol.plan.dataflow import DataflowDescription, IndexExport

pytestmark = pytest.mark.spark

SAVED = {
    "self join": 1,
    "with itself, kept once, null-safe": 1,
    "with itself, kept once, and failures in what is joined": 1,
    "groups with themselves, kept once, and by another": 1,
    "two joins on one key, kept once": 1,
    "joins of failures, kept once, null-safe and with itself": 3,
    "joins of groups, kept once on both sides": 3,
    "joins by an expression, kept once": 1,
    "groups by their key, in their state, of which a condition and a column fail": 1,
    "groups by their key, in their state, on both sides": 2,
    "distinct rows by their key, in their state, of which some fail": 1,
    "groups of one name by their key, in their state, twice": 2,
}


def joins(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[Updates, int]:
    """The updates, and how many arrangements joins read."""
    dataflow = of.build(description, workers=step_workers())
    try:
        made = of.steps(dataflow, bounds)
        return consolidated(made), sum(
            m.arrangement.endswith(("-join", "-delta", "-arranged")) for m in dataflow.arrangements()
        )
    finally:
        dataflow.drop()


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("case", tuple(map(named, SAVED)), ids=lambda case: case.name)
def test_agree_kept_once_and_for_each_side(oracle: Oracle, case: Case, seed: int, tmp_path: Path) -> None:
    """Fewer arrangements, the same updates, however the steps are cut."""
    history = random_history(case.tables, seed + 40, changes=case.changes)
    with harness(oracle.spark, tmp_path, case.tables, history) as of:
        once = oracle.describe(case, of)
        twice = kept_apart(once)
        assert once != twice, "the planner shares nothing"
        found, kept = joins(of, once, random_bounds(history, seed))
        expected, copies = joins(of, twice, random_bounds(history, seed + 1))
        assert found == expected
        assert kept == copies - SAVED[case.name]


VIEWS = {
    "of a table": "SELECT a, b, s FROM t",
    "of failures": "SELECT a, 10 div b AS b, s FROM t",
    "of groups": "SELECT a, max(b) AS b, count(*) AS s FROM t GROUP BY a",
}


def of_views(
    oracle: Oracle, of: DataflowHarness, one: DataflowDescription, views: Mapping[str, str], *exports: ExportRequest
) -> DataflowDescription:
    """The Dataflow `one` with these views instead, and with indexes of them; its sink has the last view."""
    relations = tuple(
        Relation(name, name, GlobalId(name), table.named, of.shard(name), short=True) for name, table in TU.items()
    )
    asked = tuple(ViewRequest(name, sql) for name, sql in views.items())
    last = ExportRequest("m", "materializedView", asked[-1].name)
    planned = plan(oracle.catalyst, PlanRequest("d", asked, (*exports, last), Catalogue(relations), "o/"))
    assert isinstance(planned, Planned), planned
    *indexes, view_export = planned.exports
    made = replace(
        one,
        source_imports=planned.source_imports,
        objects=planned.objects,
        index_exports=tuple(IndexExport(GlobalId(i.name), i.on, i.key, i.columns) for i in indexes),
        sink_exports=tuple(replace(sink, on=view_export.on) for sink in one.sink_exports),
    )
    check_dataflow(made)
    return made


@pytest.mark.parametrize("view", VIEWS)
def test_agree_an_index_of_the_dataflow_and_a_copy_of_it(oracle: Oracle, view: str, tmp_path: Path) -> None:
    """A later view, filtered above its joins, over what an earlier one exports: as one view without an index."""
    history = random_history(TU, 77, changes=6)
    filtered = "SELECT v.s, u.d FROM v JOIN u ON v.a = u.a WHERE v.b > 0"
    asked = f"{filtered} UNION ALL SELECT y.s, 1 FROM v x JOIN v y ON x.a = y.a"
    with harness(oracle.spark, tmp_path, TU, history) as of:
        one = oracle.describe(Case("alone", f"WITH v AS ({VIEWS[view]}) {asked}", TU), of)
        exports = (ExportRequest("i", "index", "v", ("a",)), ExportRequest("j", "index", "v", ("a",)))
        shared = of_views(oracle, of, one, {"v": VIEWS[view], "w": asked}, *exports)
        copied = kept_apart(shared)
        assert copied != shared, "the index is not used"
        expected = of.run(one, random_bounds(history, 1))
        found, kept = joins(of, shared, random_bounds(history, 2))
        again, copies = joins(of, copied, random_bounds(history, 3))
        assert found == again == expected
        assert kept < copies


@pytest.mark.parametrize("seed", seeds(1))
def test_agree_views_that_share_tables_and_one_view(oracle: Oracle, seed: int, tmp_path: Path) -> None:
    """A linear and a delta join of one table, and failures above the join: as one view that keeps all apart."""
    views = {
        "v": "SELECT t.s, t.b, u.d FROM t JOIN u ON t.a = u.a",
        "w": "SELECT t.s, t.b, x.b AS c FROM t JOIN u ON t.a = u.a JOIN t x ON x.a = u.a",
    }
    last = "SELECT s, b, 10 div b AS q FROM v WHERE d > 0 UNION ALL SELECT s, c, c - 1 FROM w WHERE b <> 5"
    history = random_history(TU, 60 + seed, changes=6)
    with harness(oracle.spark, tmp_path, TU, history) as of:
        text = ", ".join(f"{name} AS ({sql})" for name, sql in views.items())
        one = oracle.describe(Case("alone", f"WITH {text} {last}", TU), of)
        shared = of_views(oracle, of, one, {**views, "z": last})
        assert [o.id for o in shared.objects if "arranged" in o.id] == ["o/arranged/0", "o/arranged/1"]
        expected, copies = joins(of, kept_apart(one), random_bounds(history, seed))
        found, kept = joins(of, shared, random_bounds(history, seed + 1))
        assert found == expected
        assert joins(of, kept_apart(shared), random_bounds(history, seed + 2))[0] == expected
        assert kept < copies


@pytest.mark.parametrize("seed", seeds(1))
def test_agree_views_that_share_equal_parts(oracle: Oracle, seed: int, tmp_path: Path) -> None:
    """Groups of what may fail, and an outer join of them, in two views: as views that compute them for themselves."""
    counts = "SELECT a, count(*) AS c, sum(10 div b) AS q FROM t GROUP BY a"
    joined = f"SELECT u.a, z.c, z.q FROM u LEFT JOIN ({counts}) z ON u.a <=> z.a"
    views = {"v": f"{counts} HAVING c > 1", "w": joined}
    last = f"SELECT a, q FROM v UNION ALL SELECT a, q FROM w UNION ALL SELECT c, q FROM ({joined})"
    history = random_history(TU, 80 + seed, changes=6)
    with harness(oracle.spark, tmp_path, TU, history) as of:
        one = oracle.describe(Case("two columns", "SELECT a, b FROM t", TU), of)
        shared = of_views(oracle, of, one, {**views, "z": last})
        apart = kept_apart(shared)
        assert len(apart.objects) < len(shared.objects)
        expected = of.run(apart, random_bounds(history, seed))
        assert expected
        assert of.run(shared, random_bounds(history, seed + 1)) == expected


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", [case.name for case in QUERIES if "computed once" in case.name])
def test_agree_computed_once_and_by_each_reader(oracle: Oracle, name: str, seed: int, tmp_path: Path) -> None:
    """Equal parts of one view."""
    case = named(name)
    history = random_history(case.tables, seed + 90, changes=case.changes)
    with harness(oracle.spark, tmp_path, case.tables, history) as of:
        once = oracle.describe(case, of)
        assert any("/shared/" in built.id for built in once.objects)
        expected = of.run(kept_apart(once), random_bounds(history, seed))
        assert of.run(once, random_bounds(history, seed + 1)) == expected
