"""Operators of a dataflow in introspection: their arrangements, and their time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.oracle.histories import History, Table
from tests.oracle.plans import GET_T, GET_U, PLANS, counted, joined, quotients
from tests.oracle.plans.groups import PLANS as GROUPS
from tests.oracle.plans.windows import PLANS as WINDOWS
from tests.oracle.recursions.recursive_plans import RECURSIONS
from tests.oracle.tables import TU
from tests.oracle.variants.in_process import InProcessRunner, in_process
from tests.oracle.variants.in_tasks import InTasks
from tests.render.sharing.test_shared_arrangements import BOTH, FIRST, ands, join
from tidemark_planner.lir.shared_arrangements import share_arrangements
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.lir import Plan
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.lowering import lower_dataflow
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.exchanged_plan import exchanged_plan
from tidemark_replica.render.plan.fragments import Fragment, Fragments
from tidemark_replica.render.plan.jvm_frames import Frame, StageFrame, inputs_of
from tidemark_replica.render.task import timing
from tidemark_replica.render.task.timing import OperatorClock, OperatorTimes
from tidemark_replica.render.telemetry.operator_costs import OperatorCosts

BY_HAND = [(case.name, case.plan, case.tables) for case in (*PLANS, *GROUPS, *WINDOWS) if case.plan is not None] + [
    (case.name, case.query, {"e": case.table}) for case in RECURSIONS if not isinstance(case.query, str)
]


def lowered(
    folder: Path, plan: Plan, tables: Mapping[str, Table] = TU, *, arrow: bool = True
) -> tuple[Fragments, OperatorCosts]:
    with in_process(folder, tables, History(dict.fromkeys(tables, ()), 1, 1)) as made:
        fragments = lower_dataflow(made.describe(plan), {}, "token", arrow=arrow)
    return fragments, OperatorCosts(fragments, {a: id for id, a in fragments.indexes.items()})


def stages(frame: Frame) -> Iterator[StageFrame]:
    """All stages of a shape."""
    if isinstance(frame, StageFrame):
        yield frame
    for below in inputs_of(frame):
        yield from stages(below)


def shapes(fragments: Fragments) -> Iterator[StageFrame]:
    """All shapes in which a step may run, but for loops."""
    for fragment in fragments.fragments:
        if isinstance(fragment, Fragment):
            yield fragment.stage
            many = [
                exchanged_plan(fragment.stage, fragments.arrangements, single_time=single_time)
                for single_time in (True, False)
            ]
            yield from (stage for stage in many if stage is not None)


def times(shape: StageFrame, node: type = object) -> OperatorTimes:
    """A millisecond for every node of that type."""
    return OperatorTimes({s.name: tuple(1000 * isinstance(n, node) for n in p.nodes_of(s.tree)) for s in stages(shape)})


def named(operators: OperatorCosts, shape: StageFrame, spent: OperatorTimes) -> dict[str, int]:
    """Milliseconds."""
    counted_there = operators.counted(shape, spent)
    return {o.name: counted_there[at] // 1000 for at, o in enumerate(operators.operators) if counted_there[at]}


def test_operators_are_listed_as_rows_pass_through_them(tmp_path: Path) -> None:
    """With the word that `explain` has for them, and the arrangements that they keep."""
    _, operators = lowered(tmp_path, counted(joined(GET_T, GET_U)))
    listed = [(o.name, o.kind, len(o.arrangements)) for o in operators.operators]
    assert listed == [
        ("read t", "Get", 0),
        ("read u", "Get", 0),
        ("join", "Join", 2),
        ("reduce", "Reduce", 1),
        ("index index", "ArrangeBy", 1),
    ]


@pytest.mark.parametrize("arrow", [True, False])
def test_an_operator_is_charged_for_the_expressions_of_its_input(tmp_path: Path, arrow: bool) -> None:
    """Whether they are computed here, or by Spark between two calls; what reads pays for itself."""
    fragments, operators = lowered(tmp_path, counted(quotients(GET_T)), arrow=arrow)
    (fragment,) = fragments.fragments
    assert isinstance(fragment, Fragment)
    expressions = p.Compute if arrow else p.JvmInput
    assert named(operators, fragment.stage, times(fragment.stage, expressions)) == {"reduce": 1}
    assert named(operators, fragment.stage, times(fragment.stage, p.Source)) == {"read t": 1}
    assert named(operators, fragment.stage, times(fragment.stage, p.Publish)) == {"index index": 1}


def test_in_several_tasks_an_operator_is_known_by_its_arrangement(tmp_path: Path) -> None:
    """Sums that are made before rows move are the reduce's; a merge is of whom the arrangement is."""
    fragments, operators = lowered(tmp_path, counted(GET_T))
    one, many, _ = shapes(fragments)
    assert named(operators, one, times(one, p.Kernel)) == {"reduce": 1}
    assert named(operators, many, times(many, p.Kernel)) == {"reduce": 2}
    assert set(named(operators, many, times(many))) == {"read t", "reduce", "index index"}
    (kept,) = operators.operators[1].arrangements
    assert named(operators, many, OperatorTimes(merges={kept: 5000, ArrangementId("gone"): 1})) == {"reduce": 5}


def test_joins_that_keep_nothing_are_operators_of_their_own(tmp_path: Path) -> None:
    """Also where they read the same arrangements, and are equal; in one task and in several."""
    alike = [join(BOTH, FIRST, [(0, 0)])] * 2
    fragments, operators = lowered(tmp_path, share_arrangements(ands(*alike, join(BOTH, FIRST, [(0, 0)], (0,)))))
    listed = {o.name: len(o.arrangements) for o in operators.operators if o.kind == "Join"}
    assert listed == {"join 1": 0, "join 2": 0, "join 3": 0}
    *_, joins = (f for f in fragments.fragments if isinstance(f, Fragment))
    for shape in (joins.stage, exchanged_plan(joins.stage, fragments.arrangements, single_time=False)):
        assert shape is not None
        assert named(operators, shape, times(shape, p.JoinKernel)) == dict.fromkeys(listed, 1)


@pytest.mark.parametrize("arrow", [True, False])
@pytest.mark.parametrize(("name", "plan", "tables"), BY_HAND, ids=[name for name, _, _ in BY_HAND])
def test_no_state_and_no_time_is_lost(
    name: str, plan: Plan, tables: Mapping[str, Table], arrow: bool, tmp_path: Path
) -> None:
    """The test has every kind of plan: each arrangement has one owner, and all time of every shape is an operator's."""
    fragments, operators = lowered(tmp_path, plan, tables, arrow=arrow)
    owned = [a for o in operators.operators for a in o.arrangements]
    assert sorted(owned) == sorted(fragments.arrangements)
    for shape in shapes(fragments):
        spent = times(shape)
        assert operators.counted(shape, spent).total() == sum(map(sum, spent.stages.values())), shape.name


@pytest.mark.parametrize("runner", [InProcessRunner, InTasks])
def test_reported_operators_are_those_that_ran(runner: type[InProcessRunner], tmp_path: Path) -> None:
    """Nothing before a step has been committed; then rows that are there, and time of who had some."""
    rows = {name: tuple(((n % 5, n, "x"), 0, 1) for n in range(400)) for name in TU}
    with in_process(tmp_path, TU, History(rows, 0, 1)) as made:
        description = made.describe(counted(joined(GET_T, GET_U)))
        dataflow = made.build(description, runner=runner, exchange_policy=ExchangePolicy(2, 1))
        outcome = dataflow.run(dataflow.plan_step(Frontier.at(1), made.inputs(dataflow, 1)))
        assert {(o.records, o.microseconds) for o in dataflow.operators()} == {(0, 0)}
        dataflow.commit(outcome)
        found = {o.name: o for o in dataflow.operators()}
        kept = dataflow.arrangements()
        dataflow.drop()

    assert {name: o.records for name, o in found.items()} == {
        "read t": 0,
        "read u": 0,
        "join": 800,
        "reduce": 5,
        "index index": 5,
    }
    assert sum(o.bytes for o in found.values()) == sum(m.bytes for m in kept) > 0
    assert sum(o.batches for o in found.values()) == sum(len(m.batches) for m in kept)
    assert all(o.microseconds > 0 for o in found.values())


def test_the_clock_of_a_waiting_operator_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for who is above while something is made below, nor while nobody asks."""
    now = [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    below = p.Constants("c", ())
    above = p.NegateDiffs(below)
    clock = OperatorClock()

    def work(seconds: float) -> None:
        now[0] += seconds

    assert clock.turn(above) is None
    work(1)
    assert clock.turn(below) is above
    work(10)
    clock.turn(above)
    work(2)
    clock.turn(None)
    work(100)
    clock.turn(above)
    work(4)
    clock.turn(None)
    clock.merged(ArrangementId("a"), 0.5)
    spent = clock.times_of("s")
    assert spent == OperatorTimes({"s": (7_000_000, 10_000_000)}, {ArrangementId("a"): 500_000})
    assert OperatorTimes.from_json(spent.to_json()) == spent
    assert spent.plus(OperatorTimes({"s": (1, 1), "r": (3,)})).stages == {"s": (7_000_001, 10_000_001), "r": (3,)}
