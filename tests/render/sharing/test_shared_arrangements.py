"""Joins that share arrangements give the updates of joins that keep their own, over plans that are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracle.harness import INDEX, SINK, DataflowHarness, Updates, consolidated, contents, delta
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.plans import GET_T, GET_U, counted, distinct, joined, project, where_a_is_one
from tests.oracle.seeds import seeds
from tests.oracle.tables import TU, T
from tests.oracle.variants import read_index
from tests.oracle.variants.in_process import InPieces, InProcessRunner, in_process, interrupted
from tests.oracle.variants.in_tasks import InTasks
from tests.stored_files import live_files, stored_files
from tidemark_planner.lir.shared_arrangements import share_arrangements
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import LocalId
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import (
    Get,
    Join,
    JoinStage,
    Let,
    LetRec,
    LinearJoin,
    MapFilterProject,
    Mfp,
    Plan,
    RecursiveBinding,
    Union,
    inputs_of,
    refs,
)
from tidemark_protocol.types import BIGINT
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution.runner import FragmentRun
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.task.description import StageReport

A, B, _ = refs(T.schema)


def failing(plan: Plan) -> Plan:
    """a, 10 div b."""
    return Mfp(plan, MapFilterProject(plan.schema, (call("div", (Literal("10", BIGINT), B), BIGINT),), (), (0, 3)))


def ands(*plans: Plan) -> Plan:
    """All rows of plans of which the first two columns are integers: these."""
    return Union(tuple(p if len(p.schema) == 2 else project(p, 0, 1) for p in plans))


def join(left: Plan, right: Plan, keys: Sequence[tuple[int, int]], null_safe: tuple[int, ...] = ()) -> Plan:
    """The first two columns of the left and the first of the right, where the keys are equal."""
    row, other = refs(left.schema), refs(right.schema)
    kept = (left.schema[0], left.schema[1], right.schema[0])
    stage = JoinStage(
        1,
        tuple(row[k] for k, _ in keys),
        tuple(other[k] for _, k in keys),
        (0, 1),
        (0,),
        MapFilterProject(kept, projection=(1, 2)),
        null_safe,
    )
    return Join((left, right), LinearJoin(0, (stage,)))


BOTH = project(GET_T, 0, 1)
FIRST = project(GET_U, 0)
NAMED = LocalId("shared0")
COUNTS = counted(GET_T)
COUNTED = Get(NAMED, COUNTS.schema)
X = Get(LocalId("x"), BOTH.schema)
ITSELF = Join(
    (BOTH, BOTH),
    LinearJoin(0, (JoinStage(1, (A,), (A,), (0, 1), (0, 1), MapFilterProject(BOTH.schema * 2, projection=(1, 3))),)),
)
PLANS = {
    "two joins": ands(join(BOTH, FIRST, [(0, 0)]), join(BOTH, project(GET_T, 1), [(0, 0)])),
    "on the right": ands(join(FIRST_TWO := project(GET_T, 1, 0), FIRST, [(0, 0)]), join(FIRST_TWO, FIRST, [(1, 0)])),
    "both sides of two": ands(join(BOTH, FIRST, [(0, 0)]), join(BOTH, FIRST, [(0, 0)], (0,))),
    "of two columns": ands(join(BOTH, BOTH, [(0, 1), (1, 0)]), join(BOTH, BOTH, [(0, 0), (1, 1)])),
    "by one column twice": ands(*(join(BOTH, BOTH, [(0, 0), (0, 1)]), join(BOTH, BOTH, [(0, 1)])) * 2),
    "with itself, and another": ands(ITSELF, join(BOTH, FIRST, [(0, 0)])),
    "of what fails": ands(join(failing(GET_T), FIRST, [(0, 0)]), join(failing(GET_T), FIRST, [(0, 0)], (0,))),
    "by what fails": ands(join(failing(GET_T), FIRST, [(1, 0)]), join(failing(GET_T), BOTH, [(1, 1)])),
    "of groups": ands(join(COUNTS, FIRST, [(1, 0)]), join(COUNTS, project(GET_T, 1), [(1, 0)])),
    "of a name": Let(NAMED, COUNTS, ands(join(COUNTED, FIRST, [(0, 0)]), join(COUNTED, BOTH, [(0, 1)]), COUNTED)),
    "of joins that share": ands(
        join(distinct(join(BOTH, FIRST, [(0, 0)]), A, B), FIRST, [(0, 0)]),
        join(distinct(join(BOTH, FIRST, [(0, 0)]), A, B), BOTH, [(0, 0)]),
        join(BOTH, BOTH, [(0, 1)]),
    ),
    "beside a recursion": LetRec(
        (RecursiveBinding(LocalId("x"), distinct(Union((BOTH, join(BOTH, X, [(1, 0)]))), A, B), 4, True),),
        ands(join(X, FIRST, [(0, 0)]), join(X, BOTH, [(0, 1)]), join(BOTH, FIRST, [(1, 0)]), join(BOTH, X, [(1, 0)])),
    ),
}


def kinds(dataflow: RenderedDataflow) -> Counter[str]:
    return Counter(m.arrangement.rsplit("-", 1)[1] for m in dataflow.arrangements())


def run(of: DataflowHarness, plan: Plan, bounds: Sequence[int], **how: Any) -> tuple[Updates, Counter[str]]:
    """The updates, and the arrangements by kind."""
    dataflow = of.build(of.describe(plan), **how)
    try:
        return of.steps(dataflow, bounds), kinds(dataflow)
    finally:
        dataflow.drop()


WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "in pieces": lambda: {"runner": InPieces},
    "in tasks": lambda: {"runner": InTasks, "exchange_policy": ExchangePolicy(3, from_rows=0)},
    "in tasks now and then": lambda: {"runner": InTasks, "exchange_policy": ExchangePolicy(2, from_rows=6)},
}


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", PLANS)
def test_agree_shared_and_kept_apart(name: str, seed: int, tmp_path: Path) -> None:
    """However steps are cut, cut short and divided among tasks; fewer arrangements are kept."""
    plan = PLANS[name]
    shared = share_arrangements(plan)
    assert shared != plan, "nothing is shared"
    history = random_history(TU, seed + 50, changes=8)
    with in_process(tmp_path, TU, history) as of:
        expected, apart = run(of, plan, random_bounds(history, seed))
        found, together = run(of, shared, random_bounds(history, seed + 1))
        assert found == expected
        assert together["arranged"] or together["join"] < apart["join"]
        assert together.total() < apart.total()
        for number, how in enumerate(WAYS.values()):
            assert run(of, shared, random_bounds(history, seed + 2 + number), **how())[0] == expected
        assert interrupted(of, of.describe(shared), random_bounds(history, seed + 9))[1] == expected


def drawn(rng: np.random.Generator, depth: int = 2) -> Plan:
    """Joins of few inputs by few keys, so that some are equal: of two columns of integers."""
    leaves = [BOTH, project(GET_T, 1, 0), failing(GET_T), COUNTS, project(where_a_is_one(GET_T), 0, 1), FIRST_TWO]

    def side() -> Plan:
        if depth and rng.integers(0, 4) == 0:
            return distinct(drawn(rng, depth - 1), A, B)
        return leaves[int(rng.integers(0, len(leaves)))]

    def one() -> Plan:
        keys = [(int(rng.integers(0, 2)), int(rng.integers(0, 2))) for _ in range(int(rng.choice([1, 1, 1, 2])))]
        return join(side(), side(), keys, (0,) if rng.integers(0, 4) == 0 else ())

    return ands(*(one() for _ in range(int(rng.integers(2, 5)))))


@pytest.mark.parametrize("seed", seeds(6))
def test_agree_drawn_plans_with_shared_parts(seed: int, tmp_path: Path) -> None:
    """Whatever is shared in them, in one call and in tasks."""
    rng = np.random.default_rng(seed)
    plan = drawn(rng)
    history = random_history(TU, seed, changes=6)
    with in_process(tmp_path, TU, history) as of:
        expected, apart = run(of, plan, random_bounds(history, seed))
        shared = share_arrangements(plan)
        found, together = run(of, shared, random_bounds(history, seed + 1))
        assert found == expected
        assert together["arranged"] + together["join"] <= apart["join"]
        how = WAYS["in tasks now and then"]()
        assert run(of, shared, random_bounds(history, seed + 2), **how)[0] == expected


class FailsAt(InProcessRunner):
    """Fails before the run of one fragment."""

    fragment = ""

    def run(self, work: FragmentRun) -> StageReport:
        if work.prepared.fragment.name == FailsAt.fragment:
            raise StepFailed("cut short between two fragments")
        return super().run(work)


@pytest.mark.parametrize("name", ["two joins", "of groups", "of joins that share"])
def test_crash_between_what_is_arranged_and_what_reads_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is arranged twice, and nothing that a failed run arranged is read or left."""
    history = random_history(TU, 3, changes=8)
    shared = share_arrangements(PLANS[name])
    with in_process(tmp_path, TU, history) as of:
        expected, _ = run(of, PLANS[name], [history.last + 1])
        dataflow = of.build(of.describe(shared), runner=FailsAt)
        made: Updates = Counter()
        for upper in [*history.times[1:], history.last + 1]:
            step = dataflow.plan_step(Frontier.at(upper), of.inputs(dataflow, upper))
            before = of.store.arrangements()
            for fragment in ("fragment1", "fragment0"):
                monkeypatch.setattr(FailsAt, "fragment", fragment)
                try:
                    dataflow.run(step)
                except StepFailed:
                    assert of.store.arrangements() == before
            monkeypatch.setattr(FailsAt, "fragment", "")
            outcome = dataflow.run(step)
            dataflow.commit(outcome)
            made.update(delta(outcome, SINK))
            outcome.release()
            assert read_index(of, dataflow, upper - 1) == contents(made, upper - 1)
        of.store.sweep(())
        root = of.store.directory
        assert stored_files(root) == live_files(of.store.arrangements())
        dataflow.drop()
    assert consolidated(made) == expected


@pytest.mark.parametrize("name", PLANS)
def test_until_ends_what_is_shared(name: str, tmp_path: Path) -> None:
    """A step beyond the end reads no update at or after it."""
    history = random_history(TU, 8, changes=8)
    until = history.times[-2]
    with in_process(tmp_path, TU, history) as of:
        ends = [replace(of.describe(p), until=until) for p in (PLANS[name], share_arrangements(PLANS[name]))]
        expected, found = (of.run(each, [history.times[2], until]) for each in ends)
        assert found == expected


def test_an_index_of_the_same_object_keeps_its_own_since(tmp_path: Path) -> None:
    """Arrangements that joins share are compacted with the steps; those that are read from outside, as far as the
    controller allows."""
    history = random_history(TU, 4, changes=8)
    with in_process(tmp_path, TU, history) as of:
        dataflow = of.build(of.describe(share_arrangements(PLANS["two joins"])))
        of.steps(dataflow, [history.last + 1])
        sinces = {m.arrangement.rsplit("-", 1)[1]: m.since for m in dataflow.arrangements()}
        assert sinces["arranged"] == sinces["join"] == history.last
        assert sinces["index"] == history.as_of == dataflow.indexes[INDEX].since.encode()
        dataflow.drop()


def test_a_step_reads_what_is_shared_where_it_has_no_updates(tmp_path: Path) -> None:
    """The owner does not run in such a step; its readers find it complete all the same."""
    history = random_history({"t": T, "u": TU["u"]}, 21, changes=12)
    with in_process(tmp_path, TU, history) as of:
        plan = ands(*(join(BOTH, right, [(0, 0)]) for right in (FIRST, project(GET_U, 0))))
        shared = share_arrangements(plan)
        every = [*history.times[1:], history.last + 1]
        assert run(of, shared, every)[0] == run(of, plan, every)[0]


def key_reads(plan: Plan) -> int:
    """The number of Gets of names that read by a key."""
    return int(isinstance(plan, Get) and plan.key is not None) + sum(map(key_reads, inputs_of(plan)))


def test_what_a_recursion_computes_inside_is_not_shared() -> None:
    """Rows inside carry iterations."""
    plan = PLANS["beside a recursion"]
    shared = share_arrangements(plan)
    assert isinstance(plan, LetRec)
    recursion = shared
    while isinstance(recursion, Let):
        recursion = recursion.body
    assert isinstance(recursion, LetRec)
    assert recursion.bindings == plan.bindings
    assert key_reads(recursion.body) == 7


def test_a_name_that_is_bound_in_two_places_is_not_shared() -> None:
    """It may mean two things. A name that is bound once may be read by the key of its groups."""
    one = Let(NAMED, COUNTS, join(COUNTED, FIRST, [(0, 0)]))
    two = Let(NAMED, where_a_is_one(COUNTS), join(COUNTED, BOTH, [(0, 1)]))
    assert key_reads(share_arrangements(ands(one, two))) == 0
    assert key_reads(share_arrangements(ands(one, join(joined(GET_T, GET_U), BOTH, [(0, 1)])))) == 1
