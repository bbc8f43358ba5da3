"""Drawn views with joins and groups of joins in common: equal parts that are computed once, and by each reader.

All joins are of few sides that compute or group, so a part often has sides that the rest of its view needs as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracle.harness import OBJECT, DataflowHarness
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.plans import project
from tests.oracle.seeds import seeds
from tests.oracle.variants.in_process import InPieces, in_process
from tests.render.sharing.test_shared_arrangements import ands, kinds
from tests.render.test_drawn_dataflows import COUNT, IMPORTED, TABLES, divided, sharing, table
from tidemark_planner.hir.nodes import Aggregate, Hir, Join, Project, Union, columns
from tidemark_planner.lir.hir_to_lir import to_lir
from tidemark_planner.lir.imports import Imports
from tidemark_planner.lir.shared_subplans import share_subplans
from tidemark_planner.rules import optimise
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, Relation
from tidemark_protocol.plan.dataflow import BuildDesc, DataflowDescription
from tidemark_protocol.plan.lir import Get
from tidemark_protocol.types import BOOLEAN

SIDES_OF_JOINS = ("join", "delta", "arranged")


def computed(name: str) -> Hir:
    first, second, third = columns(table(name))
    return Project(table(name), (first, divided(second), third))


def groups(node: Hir) -> Hir:
    row = columns(node)
    return Aggregate(node, row[:2], row[2:], (COUNT,))


def joined_by_first(left: Hir, right: Hir, equal: str = "<=>") -> Hir:
    """The join by the first columns of both: three columns."""
    row = columns(Join((left, right)))
    join = Join((left, right), (call(equal, (row[0], row[len(left.schema)]), BOOLEAN),))
    return Project(join, (row[0], row[1], row[-1]))


RELATIONS = tuple(Relation("s", n, GlobalId(n), t.named) for n, t in TABLES.items())
SIDES = (computed("t"), computed("u"), groups(table("t")), table("t"))


class Views:
    """The views that one seed draws."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        joins = [self.joined(self.one_of([2, 2, 3])) for _ in range(3)]
        parts = [*joins, *map(groups, joins[:2])]
        parts.append(groups(self.with_side(parts[-1])))
        self.views = [self.union(parts) for _ in range(self.one_of([1, 2, 2]))]

    def one_of(self, of: Sequence[Any]) -> Any:
        return of[int(self.rng.integers(0, len(of)))]

    def with_side(self, node: Hir) -> Hir:
        return joined_by_first(node, self.one_of(SIDES), self.one_of(["<=>", "<=>", "="]))

    def joined(self, n: int) -> Hir:
        node = self.one_of(SIDES)
        for _ in range(n - 1):
            node = self.with_side(node)
        return node

    def union(self, parts: Sequence[Hir]) -> Hir:
        return Union(tuple(self.one_of(parts) for _ in range(self.one_of([2, 3, 3]))))


def described(of: DataflowHarness, views: Sequence[Hir]) -> tuple[DataflowDescription, ...]:
    """(sharing nothing, arrangements alone, parts too): a Dataflow of the views, and of one that reads them all."""
    relations = tuple(Relation("s", n, GlobalId(n), t.named, shard=of.shard(n)) for n, t in TABLES.items())
    imports = Imports(Catalogue(relations), views)
    objects = tuple(BuildDesc(GlobalId(f"v{n}"), to_lir(optimise(view), imports)) for n, view in enumerate(views))
    sources, _ = imports.of([built.plan for built in objects])
    objects += (BuildDesc(OBJECT, ands(*(project(Get(b.id, b.plan.schema), at, 2) for b in objects for at in (0, 1)))),)
    plain = replace(of.describe(objects[0].plan), source_imports=sources, objects=objects)
    return plain, *(replace(plain, objects=sharing(objects, parts)) for parts in (False, True))


def other_objects(*views: Hir) -> list[str]:
    """The objects that share_subplans makes beside the views."""
    imports = Imports(Catalogue(RELATIONS), views)
    objects = [BuildDesc(GlobalId(f"v{n}"), to_lir(optimise(view), imports)) for n, view in enumerate(views)]
    return [built.id for built in share_subplans(objects, IMPORTED, "d/") if built.id.startswith("d/")]


def test_a_side_that_each_reader_needs_elsewhere_keeps_a_part_apart() -> None:
    """The part would keep it once more. Where one reader has no other use for the side, the part is shared."""
    first, second = joined_by_first(SIDES[0], SIDES[1]), joined_by_first(SIDES[0], SIDES[3])
    part = groups(first)
    assert other_objects(Union((part, part))) == ["d/shared/0"]
    assert other_objects(Union((part, part, second))) == []
    assert other_objects(Union((part, second)), Union((second, part))) == []
    assert other_objects(Union((part, second)), Union((part, SIDES[0]))) == ["d/shared/0"]


def test_a_join_is_computed_by_each_reader() -> None:
    """It may make many rows of few; what groups it does not. A join that is a whole view is read there."""
    join = joined_by_first(SIDES[0], SIDES[3])
    assert other_objects(Union((join, join)), Union((join, SIDES[0]))) == []
    assert other_objects(Union((groups(join), SIDES[0])), Union((groups(join), SIDES[1]))) == ["d/shared/0"]
    imports = Imports(Catalogue(RELATIONS), [join])
    built = [BuildDesc(GlobalId(name), to_lir(optimise(join), imports)) for name in ("v0", "v1")]
    assert share_subplans(built, IMPORTED, "d/")[1].plan == Get(GlobalId("v0"), built[0].plan.schema)


def arrangement_counts(of: DataflowHarness, description: DataflowDescription) -> tuple[int, Counter[str]]:
    """The number of arrangements that the Dataflow keeps: (sides of joins, others by kind)."""
    dataflow = of.build(description)
    try:
        found = kinds(dataflow)
    finally:
        dataflow.drop()
    return sum(found.pop(kind, 0) for kind in SIDES_OF_JOINS), found


@pytest.mark.parametrize("seed", seeds(1))
def test_what_is_computed_once_keeps_no_arrangement_more(seed: int, tmp_path: Path) -> None:
    """Neither of sides of joins nor of other operators; some Dataflows keep fewer."""
    fewer = 0
    with in_process(tmp_path, TABLES, random_history(TABLES, seed, changes=2)) as of:
        for number in range(seed * 100, (seed + 1) * 100):
            _, *both = described(of, Views(number).views)
            (sides, others), (fewest_sides, fewest_others) = (arrangement_counts(of, each) for each in both)
            assert fewest_sides <= sides, f"views {number}"
            assert fewest_others <= others, f"views {number}"
            fewer += fewest_others < others
    assert fewer > 20


@pytest.mark.parametrize("seed", seeds(1))
def test_agree_drawn_parts_computed_once_and_by_each_reader(seed: int, tmp_path: Path) -> None:
    """However the steps are cut."""
    history = random_history(TABLES, seed + 40, changes=6)
    with in_process(tmp_path, TABLES, history) as of:
        for number in range(seed * 4 + 1000, (seed + 1) * 4 + 1000):
            apart, _, shared = described(of, Views(number).views)
            expected = of.run(apart, random_bounds(history, number))
            assert expected
            assert of.run(shared, random_bounds(history, number + 1)) == expected, f"views {number}"
            assert of.run(shared, random_bounds(history, number + 2), runner=InPieces) == expected, f"views {number}"
