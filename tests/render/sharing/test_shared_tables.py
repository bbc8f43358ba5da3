"""Views that share arrangements of tables give the updates of views that keep their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle.harness import OBJECT, DataflowHarness, Updates, consolidated
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.plans import GET_T, GET_U, ONE, project
from tests.oracle.seeds import seeds
from tests.oracle.tables import TU
from tests.oracle.variants.in_process import InPieces, in_process, interrupted
from tests.oracle.variants.in_tasks import InTasks
from tests.render.sharing.test_own_indexes import recursion, three_ways
from tests.render.sharing.test_shared_arrangements import BOTH, FIRST, ITSELF, B, FailsAt, ands, failing, join, kinds
from tidemark_planner.lir.shared_tables import share_tables
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import BuildDesc, DataflowDescription
from tidemark_protocol.plan.expr import Literal, ScalarExpr
from tidemark_protocol.plan.lir import Get, MapFilterProject, Mfp, Plan
from tidemark_protocol.types import BIGINT, BOOLEAN
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.plan.fragments import gets_of

TABLES = frozenset((GET_T.id, GET_U.id))
SWAPPED = project(GET_T, 1, 0)


def filtered(predicate: ScalarExpr) -> Plan:
    return Mfp(GET_T, MapFilterProject(GET_T.schema, (), (predicate,), (1, 0)))


POSITIVE = filtered(call(">", (B, Literal("0", BIGINT)), BOOLEAN))
DIVIDED = filtered(call(">", (call("div", (Literal("6", BIGINT), B), BIGINT), ONE), BOOLEAN))
VIEWS = {
    "linear joins": (join(BOTH, FIRST, [(0, 0)]), join(BOTH, project(GET_T, 1), [(0, 0)])),
    "linear and delta joins": (join(BOTH, FIRST, [(0, 0)]), three_ways(SWAPPED, project(GET_U, 0, 0), BOTH)),
    "delta joins": (three_ways(BOTH, GET_U, BOTH), three_ways(BOTH, GET_U, SWAPPED, equal=((0, 2), (1, 5)))),
    "one delta join": (three_ways(BOTH, GET_U, BOTH),),
    "of fewer columns, in another order": (join(SWAPPED, FIRST, [(1, 0)]), join(SWAPPED, project(GET_T, 0), [(0, 0)])),
    "filtered alike": (join(POSITIVE, FIRST, [(1, 0)]), three_ways(POSITIVE, BOTH, POSITIVE, equal=((1, 2), (2, 5)))),
    "by two columns": (join(BOTH, BOTH, [(0, 1), (1, 0)]), join(BOTH, SWAPPED, [(0, 0), (1, 1)], (0,))),
    "with itself": (ITSELF, ands(ITSELF, join(BOTH, FIRST, [(0, 0)]))),
}


def described(of: DataflowHarness, views: tuple[Plan, ...]) -> tuple[DataflowDescription, DataflowDescription]:
    """(as they are, with what they share): a Dataflow of these views, and of one that reads them all."""
    built = [BuildDesc(GlobalId(f"v{n}"), view) for n, view in enumerate(views)]
    last = BuildDesc(OBJECT, ands(*(Get(b.id, b.plan.schema) for b in built)))
    made, sharing = share_tables([*built, last], TABLES, "d/")
    plain = of.describe(BOTH)
    found = replace(plain, objects=(*built, last)), replace(plain, objects=(*made, *sharing))
    for each in found:
        check_dataflow(each)
    return found


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", VIEWS)
def test_agree_shared_among_views_and_kept_apart(name: str, seed: int, tmp_path: Path) -> None:
    """However steps are cut, cut short and divided among tasks, and with an end; fewer arrangements are kept."""
    history = random_history(TU, seed + 30, changes=8)
    with in_process(tmp_path, TU, history) as of:
        apart, shared = described(of, VIEWS[name])
        expected = of.run(apart, random_bounds(history, seed))
        assert of.run(shared, random_bounds(history, seed + 1)) == expected
        assert of.run(shared, random_bounds(history, seed + 2), runner=InPieces) == expected
        tasks = ExchangePolicy(2, from_rows=6)
        assert of.run(shared, random_bounds(history, seed + 3), runner=InTasks, exchange_policy=tasks) == expected
        assert interrupted(of, shared, random_bounds(history, seed + 4))[1] == expected
        until = history.times[-2]
        ends = [of.run(replace(each, until=until), [history.times[2], until]) for each in (apart, shared)]
        assert ends[0] == ends[1]
        kept = [of.build(each) for each in (apart, shared)]
        assert kinds(kept[1]).total() < kinds(kept[0]).total()
        for dataflow in kept:
            dataflow.drop()


def test_crash_between_a_shared_table_and_what_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a failed run arranged is kept, and the next run gives what it would have given."""
    history = random_history(TU, 3, changes=8)
    with in_process(tmp_path, TU, history) as of:
        apart, shared = described(of, VIEWS["linear and delta joins"])
        expected = of.run(apart, [history.last + 1])
        dataflow = of.build(shared, runner=FailsAt)
        made = Updates()
        for upper in [*history.times[1:], history.last + 1]:
            step = dataflow.plan_step(Frontier.at(upper), of.inputs(dataflow, upper))
            before = of.store.arrangements()
            for fragment in ("fragment1", "fragment0"):
                monkeypatch.setattr(FailsAt, "fragment", fragment)
                try:
                    dataflow.run(step).release()
                except StepFailed:
                    assert of.store.arrangements() == before
            monkeypatch.setattr(FailsAt, "fragment", "")
            made.update(of.steps(dataflow, [upper]))
        dataflow.drop()
    assert consolidated(made) == expected


@pytest.mark.parametrize(
    ("what", "views"),
    [
        ("computed", (join(failing(GET_T), FIRST, [(0, 0)]), join(failing(GET_T), BOTH, [(0, 0)]))),
        ("a filter that may fail", (join(DIVIDED, FIRST, [(1, 0)]), join(DIVIDED, BOTH, [(1, 0)]))),
        ("other filters", (join(POSITIVE, FIRST, [(1, 0)]), join(SWAPPED, FIRST, [(1, 0)]))),
        ("other keys", (join(BOTH, FIRST, [(0, 0)]), join(BOTH, FIRST, [(1, 0)]))),
        ("neither has all columns", (join(BOTH, FIRST, [(0, 0)]), join(project(GET_T, 2, 0), FIRST, [(1, 0)]))),
        ("inside a recursion", (recursion(BOTH), recursion(project(BOTH, 0, 1)))),
        ("in one view, alike", (ands(join(BOTH, FIRST, [(0, 0)]), join(BOTH, project(GET_U, 0, 0), [(0, 0)])),)),
    ],
)
def test_must_keep_apart(what: str, views: tuple[Plan, ...]) -> None:
    """Parts stay apart that may fail, have other rows, would be wider than a reader needs, or are of a binding of a
    view."""
    built = [BuildDesc(GlobalId(f"v{n}"), view) for n, view in enumerate(views)]
    made, _ = share_tables(built, TABLES, "d/")
    assert GET_T.id not in {get.id for each in made for get in gets_of(each.plan)}
