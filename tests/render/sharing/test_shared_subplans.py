"""Objects that share equal parts give the updates of objects that compute them for themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle.harness import INDEX, OBJECT, SINK, DataflowHarness, Updates, consolidated, delta
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.plans import distinct
from tests.oracle.seeds import seeds
from tests.oracle.variants.in_process import InPieces, in_process, interrupted
from tests.oracle.variants.in_tasks import InTasks
from tests.render.sharing.test_own_indexes import recursion
from tests.render.sharing.test_shared_arrangements import BOTH, FailsAt, ands
from tests.render.test_drawn_dataflows import COUNT, IMPORTED, TABLES, Drawing, divided, named, number, table
from tidemark_planner.hir.nodes import (
    Aggregate,
    Filter,
    Hir,
    Intersection,
    Join,
    Match,
    MatchKind,
    Project,
    TopK,
    Union,
    Window,
    columns,
)
from tidemark_planner.lir.hir_to_lir import to_lir
from tidemark_planner.lir.imports import Imports
from tidemark_planner.lir.shared_subplans import share_subplans
from tidemark_planner.rules import optimise
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.messages.planning import Catalogue, Relation
from tidemark_protocol.plan import lir
from tidemark_protocol.plan.dataflow import BuildDesc, DataflowDescription, IndexExport
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import Get, OrderKey, Plan, WindowCall
from tidemark_protocol.types import BIGINT, BOOLEAN, INT, ColumnType
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.plan.fragments import gets_of

T, U = table("t"), table("u")
A, B, C = columns(T)
COUNTS = Aggregate(T, (A, B), (A,), (COUNT,))
SUMS = Aggregate(Project(T, (A, divided(B))), (A,), (divided(B),), (COUNT,))


def many(node: Hir, least: int) -> Hir:
    """The rows of which the last column is greater."""
    last = columns(node)[-1]
    return Filter(node, (call(">", (last, Literal(str(least), last.type)), BOOLEAN),))


def equal(left: Hir, right: Hir, at: int = 0) -> Hir:
    """The join of both by the first column of the right. NULLs are equal: `=` would leave them out below the join."""
    row = columns(Join((left, right)))
    on = call("<=>", (row[at], row[len(left.schema)]), BOOLEAN)
    return Join((left, right), (on,))


def outer(left: Hir, right: Hir) -> Hir:
    return Match(MatchKind.LEFT, left, right, (call("=", (columns(left)[0], A_OF[len(left.schema)]), BOOLEAN),))


A_OF = [replace(A, index=at) for at in range(8)]
FAILS = Aggregate(Project(T, (A, divided(B), C)), columns(T)[:2], (C,), (COUNT,))
ROW_NUMBER = WindowCall("row_number", (), ColumnType(INT, False))
RANKED = Window(T, (0,), (OrderKey(1, False, False), OrderKey(2, True, True)), (ROW_NUMBER,))
FIRST = TopK(T, (0,), (OrderKey(1, False, False),), 1)
DIFFERENCE = Intersection(T, Project(U, columns(U)))
VIEWS: dict[str, tuple[Hir, ...]] = {
    "groups, of which each shows others": (many(COUNTS, 1), equal(many(COUNTS, 0), U), COUNTS),
    "groups of what fails": (FAILS, equal(FAILS, U), many(FAILS, 1)),
    "one view whole, and in others": (COUNTS, COUNTS, equal(COUNTS, COUNTS, at=1)),
    "a join": (equal(T, U), Union((equal(T, U),) * 2), equal(equal(T, U), COUNTS)),
    "an outer join": (Union((outer(T, COUNTS),) * 2), equal(U, outer(T, COUNTS))),
    "failures below a join": (equal(Project(T, (A, divided(B))), FAILS), equal(Project(T, (A, divided(B))), FAILS)),
    "the first of each": (FIRST, equal(FIRST, U), Project(FIRST, (B, A))),
    "numbered rows": (many(RANKED, 1), equal(RANKED, COUNTS)),
    "what is in both": (DIFFERENCE, Aggregate(DIFFERENCE, (B,), (B,), (COUNT,))),
    "parts of a part": (
        equal(many(COUNTS, 1), Aggregate(equal(COUNTS, U), (A,), (A,), (COUNT,))),
        Aggregate(equal(COUNTS, U), (A,), (A,), (COUNT,)),
        many(COUNTS, 2),
    ),
}


def described(of: DataflowHarness, views: tuple[Hir, ...]) -> tuple[DataflowDescription, DataflowDescription]:
    """(as they are, with what they share): a Dataflow of these views, and of one that reads them all."""
    relations = tuple(Relation("s", n, GlobalId(n), t.named, shard=of.shard(n)) for n, t in TABLES.items())
    imports = Imports(Catalogue(relations), views)
    built = [BuildDesc(GlobalId(f"v{n}"), to_lir(optimise(view), imports)) for n, view in enumerate(views)]
    last = BuildDesc(OBJECT, ands(*(Get(b.id, b.plan.schema) for b in built)))
    plain = of.describe(to_lir(Project(T, (A, B)), imports))
    index = IndexExport(INDEX, built[0].id, (0,), named(built[0].plan.schema))
    sources, _ = imports.of([b.plan for b in built])
    found = [
        replace(plain, source_imports=sources, objects=tuple(objects), index_exports=(index,))
        for objects in ([*built, last], share_subplans([*built, last], IMPORTED, "d/"))
    ]
    for each in found:
        check_dataflow(each)
    return found[0], found[1]


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", VIEWS)
def test_agree_computed_once_and_by_each_reader(name: str, seed: int, tmp_path: Path) -> None:
    """However steps are cut, cut short and divided among tasks, and with an end; fewer arrangements are kept."""
    history = random_history(TABLES, seed + 90, changes=8)
    with in_process(tmp_path, TABLES, history) as of:
        apart, shared = described(of, VIEWS[name])
        expected = of.run(apart, random_bounds(history, seed))
        assert expected
        assert of.run(shared, random_bounds(history, seed + 1)) == expected
        assert of.run(shared, random_bounds(history, seed + 2), runner=InPieces) == expected
        tasks = ExchangePolicy(2, from_rows=6)
        assert of.run(shared, random_bounds(history, seed + 3), runner=InTasks, exchange_policy=tasks) == expected
        assert interrupted(of, shared, random_bounds(history, seed + 4))[1] == expected
        until = history.times[-2]
        ends = [of.run(replace(each, until=until), [history.times[2], until]) for each in (apart, shared)]
        assert ends[0] == ends[1]
        kept = [of.build(each) for each in (apart, shared)]
        assert len(kept[1].arrangements()) < len(kept[0].arrangements())
        for dataflow in kept:
            dataflow.drop()


def test_crash_between_a_shared_part_and_what_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a failed run arranged is kept, and the next run gives what it would have given."""
    history = random_history(TABLES, 3, changes=8)
    with in_process(tmp_path, TABLES, history) as of:
        apart, shared = described(of, VIEWS["groups, of which each shows others"])
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


def test_a_reader_that_is_dropped_leaves_the_part_to_the_others(tmp_path: Path) -> None:
    """The index of one view is dropped between two steps; the sink of another goes on."""
    history = random_history(TABLES, 5, changes=8)
    with in_process(tmp_path, TABLES, history) as of:
        apart, shared = described(of, VIEWS["groups, of which each shows others"])
        expected = of.run(apart, [history.last + 1])
        dataflow, made = of.build(shared), Updates()
        for upper in [*history.times[1:], history.last + 1]:
            outcome = of.step(dataflow, upper)
            made.update(delta(outcome, SINK))
            outcome.release()
            if upper == history.times[2]:
                dataflow.compact(INDEX, Frontier.empty())
            of.store.sweep(())
        dataflow.drop()
    assert consolidated(made) == expected


def made_of(*plans: Plan) -> list[str]:
    """The objects of views with these plans."""
    built = [BuildDesc(GlobalId(f"v{n}"), plan) for n, plan in enumerate(plans)]
    return [each.id for each in share_subplans(built, IMPORTED, "d/")]


RELATIONS = tuple(Relation("s", n, GlobalId(n), t.named) for n, t in TABLES.items())


def lowered(view: Hir) -> Plan:
    return to_lir(optimise(view), Imports(Catalogue(RELATIONS), [view]))


def test_what_no_reader_has_alike_is_not_shared() -> None:
    """Other filters below the part, even where they are those of one reader alone; what keeps no state."""
    positive = Aggregate(Filter(T, (call(">", (A, number(0)), BOOLEAN),)), (A, B), (A,), (COUNT,))
    assert made_of(lowered(COUNTS), lowered(positive)) == ["v0", "v1"]
    filtered = Filter(COUNTS, (call(">", (A, number(0)), BOOLEAN),))
    assert made_of(lowered(COUNTS), lowered(filtered)) == ["v0", "v1"]
    stateless = Project(T, (A, divided(B)))
    assert made_of(lowered(stateless), lowered(Union((stateless, stateless)))) == ["v0", "v1"]


def squared(node: Hir, times: int) -> Hir:
    """The second column squared so often: more than one operator evaluates, so the planner cuts the chain."""
    for _ in range(times):
        first, second, *rest = columns(node)
        node = Project(node, (first, call("*", (second, second), BIGINT), *rest))
    return node


def cut(input: Hir) -> Hir:
    """A chain over groups, that the planner cuts: an Mfp over a reduction with another and a filter."""
    return squared(many(Aggregate(input, (A,), (A,), (COUNT, COUNT)), 1), 14)


PAIRS = Aggregate(T, (A, B), (), ())
CUT, CUT_OVER_SHARED = cut(T), (cut(PAIRS), equal(PAIRS, U))


def test_a_chain_over_a_reduction_that_is_cut_stays_whole(tmp_path: Path) -> None:
    """Both of its parts, with the filter in the one at the reduction; also where what is below it is shared."""
    plan = lowered(CUT)
    assert isinstance(plan, lir.Mfp)
    assert isinstance(plan.input, lir.Reduce)
    assert not plan.input.mfp_after.is_identity
    assert share_subplans([BuildDesc(GlobalId("v0"), plan)], IMPORTED, "d/") == (BuildDesc(GlobalId("v0"), plan),)
    history = random_history(TABLES, 2, changes=8)
    with in_process(tmp_path, TABLES, history) as of:
        apart, shared = described(of, CUT_OVER_SHARED)
        assert [o.id for o in shared.objects] == ["d/shared/0", "v0", "v1", OBJECT]
        assert of.run(shared, [history.last + 1]) == of.run(apart, [history.last + 1])


def without_names(plan: Plan, objects: Mapping[LocalId | GlobalId, Plan], bound: tuple[LocalId, ...] = ()) -> Plan:
    """The plan without names of objects and of bindings, and each reduction without an Mfp after it."""
    match plan:
        case Get(id) if id in bound:
            return replace(plan, id=LocalId(str(bound[::-1].index(LocalId(id)))))
        case Get(id):
            return objects.get(id, plan)
        case lir.Let(id, value, body):
            below = (without_names(value, objects, bound), without_names(body, objects, (*bound, id)))
            return lir.Let(LocalId("let"), *below)
        case lir.Reduce() if not plan.mfp_after.is_identity:
            core = replace(plan, mfp_after=lir.MapFilterProject.identity(plan.mfp_after.input))
            return lir.Mfp(without_names(core, objects, bound), plan.mfp_after)
        case _:
            return lir.with_inputs(plan, [without_names(below, objects, bound) for below in lir.inputs_of(plan)])


def test_what_is_shared_put_back_gives_the_plans_as_they_were() -> None:
    """The plans are of drawn Dataflows, and of the views above; where nothing is shared, the objects are the same."""
    drawn = [[(view, id) for id, view in Drawing(seed).views] for seed in range(60)]
    listed = [
        [(optimise(view), GlobalId(f"v{n}")) for n, view in enumerate(views)]
        for views in [*VIEWS.values(), (CUT,), CUT_OVER_SHARED]
    ]
    sharing = 0
    for views in [*drawn, *listed]:
        imports = Imports(Catalogue(RELATIONS), [view for view, _ in views])
        objects = [BuildDesc(id, to_lir(view, imports)) for view, id in views]
        made = share_subplans(objects, IMPORTED, "d/")
        found: list[dict[LocalId | GlobalId, Plan]] = [{}, {}]
        for of, into in zip((objects, made), found, strict=True):
            for built in of:
                into[built.id] = without_names(built.plan, into)
        assert {built.id: found[1][built.id] for built in objects} == found[0]
        sharing += len(made) > len(objects)
        if len(made) == len(objects) and not reads_views(made, objects):
            assert made == tuple(objects)
    assert sharing > 10


def reads_views(made: Sequence[BuildDesc], objects: Sequence[BuildDesc]) -> bool:
    """Whether an object reads another that it did not read."""
    read = [[get.id for built in of for get in gets_of(built.plan)] for of in (made, objects)]
    return read[0] != read[1]


def test_parts_that_read_the_clock_are_left_alone() -> None:
    """In an Mfp, and in what follows a table function; without the clock such parts are shared."""
    plain = lir.MapFilterProject(lowered(T).schema)
    clock = replace(plain, lower=(A,))
    for make in (lambda mfp: lir.Mfp(lowered(T), mfp), exploded):
        of_two = [lir.Union((distinct(make(mfp), A),) * 2) for mfp in (plain, clock)]
        assert made_of(of_two[0]) == ["d/shared/0", "v0"]
        assert made_of(of_two[1]) == ["v0"]


def exploded(mfp: lir.MapFilterProject) -> Plan:
    """A table function whose value is dropped again before the Mfp."""
    produces = (ColumnType(BIGINT, False),)
    after = replace(mfp, input=(*mfp.input, *produces), projection=(0, 1, 2))
    return lir.FlatMap(lowered(T), "sequence", (number(1), number(2)), produces, after)


def test_recursions_are_left_alone() -> None:
    """Two views of one recursion, and what is inside it; the part beside it is shared."""
    loops = recursion(BOTH)
    assert made_of(loops, loops) == ["v0", "v1"]


def test_a_part_that_reads_a_binding_from_outside_stays_there() -> None:
    """The part is equal in text alone; the names of bindings inside a part do not matter."""
    name, other = LocalId("x"), LocalId("y")
    counts = lowered(COUNTS)

    def over(name: LocalId, value: Plan) -> Plan:
        get = Get(name, value.schema)
        a, *_ = lir.refs(value.schema)
        return lir.Let(name, value, lir.Union((distinct(get, a),) * 2))

    first, second = over(name, counts), over(name, lowered(many(COUNTS, 1)))
    made = share_subplans([BuildDesc(GlobalId("v0"), first), BuildDesc(GlobalId("v1"), second)], IMPORTED, "d/")
    assert [get.id for get in gets_of(made[1].plan)] == ["d/shared/0", "x", "x"]
    assert made_of(over(name, counts), lir.Union((over(other, counts), distinct(counts, A)))) == [
        "d/shared/0",
        "v0",
        "v1",
    ]
