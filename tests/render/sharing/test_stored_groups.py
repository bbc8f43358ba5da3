"""Joins that read groups by their key, in the state of the reduction, against joins that keep them: plans by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle.harness import OBJECT, SINK, DataflowHarness, Updates, consolidated, contents, delta
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.plans import GET_T, GET_U, counted, distinct, project
from tests.oracle.seeds import seeds
from tests.oracle.tables import TU, T
from tests.oracle.variants import read_index
from tests.oracle.variants.in_process import in_process, interrupted
from tests.render.sharing.test_shared_arrangements import BOTH, FIRST, WAYS, FailsAt, ands, join, key_reads, kinds, run
from tests.stored_files import live_files, stored_files
from tidemark_planner.lir.shared_arrangements import share_arrangements, share_in_each
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.dataflow import BuildDesc, DataflowDescription, IndexExport
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
    CollationReduce,
    Get,
    HierarchicalReduce,
    Let,
    LetRec,
    MapFilterProject,
    Mfp,
    Plan,
    RecursiveBinding,
    Reduce,
    Union,
    refs,
)
from tidemark_protocol.types import BIGINT, BOOLEAN, Column, ColumnType
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.reduce import collation

A, B, _ = refs(T.schema)
COUNT = AggregateExpr("count", None, ColumnType(BIGINT, False))
NAMED = LocalId("shared0")


def number(value: int) -> Literal:
    return Literal(str(value), BIGINT)


def shown(plan: Plan, expressions: tuple[ScalarExpr, ...], *columns: int, least: int | None = None) -> Plan:
    """Columns and computed ones of the rows whose second column is greater than `least`."""
    second = refs(plan.schema)[1]
    kept = () if least is None else (call(">", (second, number(least)), BOOLEAN),)
    return Mfp(plan, MapFilterProject(plan.schema, expressions, kept, columns))


def minus(of: ColumnRef, value: int) -> ScalarExpr:
    return call("-", (of, number(value)), BIGINT)


def reduced(key: tuple[ColumnRef, ...], *aggregates: AggregateExpr) -> Reduce:
    """Groups of t by columns of it, with aggregates over b."""
    schema = (*(ColumnType(k.type) for k in key), *(a.type for a in aggregates))
    return Reduce(GET_T, key, (B,), AccumulableReduce(aggregates), MapFilterProject.identity(schema))


SUM = AggregateExpr("sum", 0, ColumnType(BIGINT))
COUNTS, SUMS = counted(GET_T), reduced((A,), COUNT, SUM)
TENTH = call("div", (number(10), minus(refs(COUNTS.schema)[1], 2)), BIGINT)
HAVING, FAILING = shown(COUNTS, (), 1, 0, least=1), shown(COUNTS, (TENTH,), 0, 2)
AFTER = replace(COUNTS, mfp_after=MapFilterProject(COUNTS.schema, (TENTH,), (), (2, 0, 1)))
OF_TWO = reduced((A, B), COUNT)
DISTINCT_VALUES = reduced((A,), replace(COUNT, argument=0, distinct=True), replace(SUM, distinct=True))
COUNTED = Get(NAMED, COUNTS.schema)
PAIRS = distinct(GET_T, A, B)

PLANS: dict[str, tuple[Plan, int]] = {
    "on the right": (join(BOTH, COUNTS, [(0, 0)]), 1),
    "on the left": (join(COUNTS, FIRST, [(0, 0)]), 1),
    "on both sides": (join(COUNTS, distinct(GET_U, refs(GET_U.schema)[0]), [(0, 0)]), 2),
    "null-safe": (join(BOTH, SUMS, [(0, 0)], (0,)), 1),
    "distinct rows by two columns": (join(BOTH, PAIRS, [(1, 1), (0, 0)], (1,)), 1),
    "by two columns in another order": (join(OF_TWO, BOTH, [(1, 1), (0, 0)], (0,)), 1),
    "under a condition": (join(BOTH, HAVING, [(1, 1)], (0,)), 1),
    "of which expressions fail": (join(FAILING, BOTH, [(0, 0)], (0,)), 1),
    "of which the reduction's own expressions fail": (join(BOTH, AFTER, [(0, 1)], (0,)), 1),
    "of distinct values": (join(BOTH, DISTINCT_VALUES, [(0, 0)], (0,)), 1),
    "of a name, twice": (
        Let(NAMED, COUNTS, ands(join(COUNTED, FIRST, [(0, 0)]), join(BOTH, COUNTED, [(0, 0)], (0,)), COUNTED)),
        2,
    ),
    "by one key twice, and by another": (
        ands(join(COUNTS, FIRST, [(0, 0)]), join(COUNTS, FIRST, [(0, 0)], (0,)), join(COUNTS, BOTH, [(1, 0)])),
        4,
    ),
    "what is computed of a name": (
        Let(NAMED, COUNTS, ands(join(BOTH, shown(COUNTED, (), 1, 0, least=0), [(0, 1)]), COUNTED)),
        1,
    ),
    "on both sides, with the key in two orders": (
        join(distinct(join(BOTH, COUNTS, [(0, 0)]), A, refs(BOTH.schema)[1]), PAIRS, [(0, 1), (1, 0)], (0, 1)),
        2,
    ),
}


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", PLANS)
def test_agree_groups_in_their_state_and_kept_by_the_join(name: str, seed: int, tmp_path: Path) -> None:
    """However steps are cut, cut short and divided among tasks, and with an end; the join's copy is saved."""
    plan, saved = PLANS[name]
    shared = share_arrangements(plan)
    assert key_reads(shared)
    history = random_history(TU, seed + 30, changes=10)
    with in_process(tmp_path, TU, history) as of:
        expected, apart = run(of, plan, random_bounds(history, seed))
        found, together = run(of, shared, random_bounds(history, seed + 1))
        assert expected
        assert found == expected
        assert together.total() == apart.total() - saved
        for number, how in enumerate(WAYS.values()):
            assert run(of, shared, random_bounds(history, seed + 2 + number), **how())[0] == expected
        assert interrupted(of, of.describe(shared), random_bounds(history, seed + 9))[1] == expected
        until = history.times[-2]
        ends = [of.run(replace(of.describe(p), until=until), [history.times[2], until]) for p in (plan, shared)]
        assert ends[0] == ends[1]


@pytest.mark.parametrize("name", ["of which expressions fail", "of a name, twice", "on both sides"])
def test_crash_between_two_steps_and_within_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a failed run has added to the state are not met, and no file of the rows of a step is left."""
    plan, _ = PLANS[name]
    history = random_history(TU, 7, changes=8)
    with in_process(tmp_path, TU, history) as of:
        expected, _ = run(of, plan, [history.last + 1])
        dataflow = of.build(of.describe(share_arrangements(plan)), runner=FailsAt)
        fragments = [f"fragment{n}" for n in range(len(dataflow._fragments.fragments))][::-1]
        made: Updates = Counter()
        for upper in [*history.times[1:], history.last + 1]:
            step = dataflow.plan_step(Frontier.at(upper), of.inputs(dataflow, upper))
            for fragment in fragments:
                monkeypatch.setattr(FailsAt, "fragment", fragment)
                with suppress(StepFailed):
                    dataflow.run(step).release()  # a fragment without updates does not run
            monkeypatch.setattr(FailsAt, "fragment", "")
            outcome = dataflow.run(step)
            dataflow.commit(outcome)
            made.update(delta(outcome, SINK))
            outcome.release()
            assert read_index(of, dataflow, upper - 1) == contents(made, upper - 1)
        of.store.sweep(())
        assert stored_files(of.store.directory) == live_files(of.store.arrangements())
        dataflow.drop()
    assert consolidated(made) == expected


VIEW = GlobalId("o/groups")


def of_views(of: DataflowHarness, view: Plan, index: Sequence[int] | None) -> tuple[DataflowDescription, ...]:
    """(apart, sharing): a view of groups, exported by an index or not, and a later one that joins it twice."""
    get = Get(VIEW, view.schema)
    last = ands(join(BOTH, get, [(0, 0)], (0,)), join(shown(get, (), 0, 1, least=1), FIRST, [(0, 0)]), get)
    one = of.describe(BOTH)
    objects = (BuildDesc(VIEW, view), BuildDesc(OBJECT, last))
    columns = tuple(Column(f"x{n}", c.type, c.nullable) for n, c in enumerate(view.schema))
    exported = () if index is None else (IndexExport(GlobalId("i"), VIEW, tuple(index), columns),)
    found = [
        replace(one, objects=o, index_exports=(*one.index_exports, *exported))
        for o in (objects, share_in_each(objects))
    ]
    for each in found:
        check_dataflow(each)
    return tuple(found)


@pytest.mark.parametrize("index", [None, (1,), (0,)], ids=str)
@pytest.mark.parametrize("seed", seeds(2))
def test_agree_views_that_read_the_groups_of_another(index: tuple[int, ...] | None, seed: int, tmp_path: Path) -> None:
    """With and without an index of it, by the groups' key too; in tasks, cut short, while the index is dropped."""
    history = random_history(TU, seed + 60, changes=8)
    with in_process(tmp_path, TU, history) as of:
        apart, shared = of_views(of, SUMS, index)
        expected = of.run(apart, random_bounds(history, seed))
        assert expected
        assert of.run(shared, random_bounds(history, seed + 1)) == expected
        for number, how in enumerate(WAYS.values()):
            assert of.run(shared, random_bounds(history, seed + 2 + number), **how()) == expected
        assert interrupted(of, shared, random_bounds(history, seed + 9))[1] == expected
        kept = [of.build(each) for each in (apart, shared)]
        assert kinds(kept[0])["join"] == kinds(kept[1])["join"] + 2
        made: Updates = Counter()
        for upper in [*history.times[1:], history.last + 1]:
            made.update(of.steps(kept[1], [upper]))
            if index is not None and upper == history.times[2]:
                kept[1].compact(GlobalId("i"), Frontier.empty())
        for dataflow in kept:
            dataflow.drop()
    assert consolidated(made) == expected


MIN = AggregateExpr("min", 0, ColumnType(BIGINT))
PARTS = (
    AccumulableReduce((COUNT, replace(COUNT, argument=0, distinct=True), SUM)),
    HierarchicalReduce((MIN, replace(MIN, function="max"))),
)


def collated(key: tuple[ColumnRef, ...], *positions: tuple[int, ...]) -> Plan:
    """count(*), count(DISTINCT b), sum(b), min(b), max(b) of t, in an order."""
    kinds = [a for part in PARTS for a in part.aggregates]
    places = [p for part in positions for p in part]
    ordered = [kinds[places.index(n)].type for n in range(len(places))]
    schema = (*(ColumnType(k.type) for k in key), *ordered)
    return Reduce(GET_T, key, (B,), CollationReduce(PARTS, positions), MapFilterProject.identity(schema))


@pytest.mark.parametrize("key", [(A,), (A, B), ()], ids=len)
@pytest.mark.parametrize("seed", seeds(2))
def test_agree_aggregates_of_several_kinds(
    seed: int, key: tuple[ColumnRef, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sums are met in the state; without a key there is one row, which is kept."""
    plan = collated(key, (4, 0, 2), (1, 3))
    history = random_history(TU, seed + 20, changes=10)
    with in_process(tmp_path, TU, history) as of:
        with monkeypatch.context() as patch:
            patch.setattr(collation, "order_of_groups", lambda tree, key: None)
            expected, apart = run(of, plan, random_bounds(history, seed))
        found, together = run(of, plan, random_bounds(history, seed + 1))
        assert found == expected
        assert apart["collation"] - together["collation"] == (2 if key else 0)
        for number, how in enumerate(WAYS.values()):
            assert run(of, plan, random_bounds(history, seed + 2 + number), **how())[0] == expected
        assert interrupted(of, of.describe(plan), random_bounds(history, seed + 9))[1] == expected


def test_what_is_not_found_by_the_key_of_groups_is_kept() -> None:
    """By a part of the key, by an aggregate, by an expression; min and max; several kinds; the clock; in a loop."""
    schema = OF_TWO.schema
    by_hand: list[Plan] = [
        join(BOTH, OF_TWO, [(0, 0)]),
        join(BOTH, COUNTS, [(0, 1)]),
        join(BOTH, shown(COUNTS, (minus(refs(COUNTS.schema)[0], 1),), 2, 1), [(0, 0)]),
        join(BOTH, shown(OF_TWO, (), 0, 2), [(0, 0)]),
        join(BOTH, replace(COUNTS, plan=HierarchicalReduce((MIN,)), values=(B,)), [(0, 0)]),
        join(BOTH, replace(OF_TWO, plan=PARTS[0], mfp_after=MapFilterProject(schema)), [(0, 0), (1, 1)]),
        join(BOTH, Mfp(COUNTS, replace(MapFilterProject(COUNTS.schema), lower=refs(COUNTS.schema)[1:])), [(0, 0)]),
    ]
    inside = Union((BOTH, join(Get(NAMED, BOTH.schema), COUNTS, [(0, 0)])))
    by_hand.append(LetRec((RecursiveBinding(NAMED, inside, 3, True),), Get(NAMED, BOTH.schema)))
    for plan in by_hand:
        assert share_arrangements(plan) is plan


def test_a_name_that_is_bound_in_two_places_is_no_key() -> None:
    one = Let(NAMED, COUNTS, join(COUNTED, FIRST, [(0, 0)]))
    two = Let(NAMED, project(BOTH, 1, 0), join(COUNTED, BOTH, [(0, 0)]))
    assert key_reads(share_arrangements(ands(one, two))) == 0


def test_rows_of_a_copy_come_from_a_plan_without_the_key(tmp_path: Path) -> None:
    """A stored plan of an older planner keeps the copy that it was planned with."""
    history = random_history(TU, 2, changes=3)
    with in_process(tmp_path, TU, history) as of:
        plan = share_arrangements(PLANS["on the right"][0])
        assert isinstance(plan, Let)
        stored = replace(plan, body=join(BOTH, Get(plan.id, COUNTS.schema), [(0, 0)]))
        _, kept = run(of, stored, [history.last + 1])
        _, found = run(of, plan, [history.last + 1])
        assert kept["join"] == found["join"] + 1
