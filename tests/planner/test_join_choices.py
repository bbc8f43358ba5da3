"""The state and the first input that the choice of a join's order gives, over random joins of tables with keys and
indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from tests.checked_patches import CheckedPatches
from tidemark_planner.lir import joins
from tidemark_planner.lir.joins import join_plan
from tidemark_planner.lir.joins.inputs import IndexedInput, Key, PlannedInput, arrangement_count
from tidemark_planner.lir.joins.order import KnownRows, PossibleLookup
from tidemark_planner.lir.mfp import FilterProject
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr
from tidemark_protocol.plan.lir import DeltaJoin, Get, Join, refs
from tidemark_protocol.types import BIGINT, BOOLEAN, ColumnType

WIDTH = 3
SCHEMA = (ColumnType(BIGINT, nullable=False),) * WIDTH
# (input, column) = (input, column)
Equalities = Sequence[tuple[tuple[int, int], tuple[int, int]]]


def equal(left: ScalarExpr, right: ScalarExpr) -> Call:
    return Call("=", (left, right), BOOLEAN, nullable=False)


def table(at: int, known: KnownRows, index: Key | None = None, *filters: ScalarExpr) -> PlannedInput:
    """Table `t{at}`, and its index `i{at}`, of which `filters` keep some rows."""
    if index is None:
        return PlannedInput(Get(GlobalId(f"t{at}"), SCHEMA), None, known)
    unique = frozenset({index} if any(set(key) <= set(index) for key in known.unique_keys) else ())
    row = FilterProject(filters, refs(SCHEMA))
    indexed = IndexedInput((Get(GlobalId(f"i{at}"), SCHEMA),), (index,), row, unique, known.unique_keys)
    return PlannedInput(Get(GlobalId(f"t{at}"), SCHEMA), indexed, known)


def joined(inputs: Sequence[PlannedInput], on: Equalities) -> Join:
    row = refs(SCHEMA * len(inputs))
    predicates = [equal(row[a * WIDTH + c], row[b * WIDTH + d]) for (a, c), (b, d) in on]
    return join_plan(inputs, predicates, FilterProject((), row))


def own_arrangements(join: Join, inputs: Sequence[PlannedInput]) -> int:
    """The arrangements that the join keeps itself."""
    keys = {get.id: c.indexed.keys for c in inputs if c.indexed for get in c.indexed.gets}
    return arrangement_count(join, [keys.get(plan.id, ()) for plan in join.inputs if isinstance(plan, Get)])


def by_primary_keys(random: Random) -> tuple[list[PlannedInput], Equalities]:
    """Tables that reference each other's primary key as a tree, and one more equality that closes a cycle."""
    count = random.choice((3, 4, 5))
    names = random.sample(range(count), count)
    inputs = []
    for at in range(count):
        share, index = random.choice((0, 0, -4, -2)), random.choice((None, (0,), (1,)))
        inputs.append(table(at, KnownRows(((0,),), share, random.random() < 0.2), index))
    on = [((names[at], random.choice((1, 2))), (names[random.randrange(at)], 0)) for at in range(1, count)]
    a, b = random.sample(range(count), 2)
    return inputs, [*on, ((a, random.choice((1, 2))), (b, random.choice((1, 2))))]


def former(lookup: PossibleLookup) -> tuple[int, ...]:
    """Joins were ordered so before anything was known of rows: arrangements that exist, then the query's order."""
    return lookup.columns == 0, not lookup.arranged, lookup.input


# customer, orders, invoice: invoice.payer = customer.id, orders.customer = customer.id, invoice.buyer = orders.customer
INVOICES = (
    [table(at, KnownRows(((0,),), share)) for at, share in enumerate((0, 0, -4))],
    (((2, 2), (0, 0)), ((1, 1), (0, 0)), ((2, 1), (1, 1))),
)


def problems() -> Iterator[tuple[Sequence[PlannedInput], Equalities]]:
    yield INVOICES
    yield from (by_primary_keys(Random(seed)) for seed in range(60))


def test_no_choice_keeps_more_arrangements_than_the_query_s_order() -> None:
    chosen = [own_arrangements(joined(inputs, on), inputs) for inputs, on in problems()]
    with CheckedPatches.context() as patch:
        patch.setattr(joins, "FIRST_INPUTS", (lambda known, orders: 0,))
        patch.setattr(joins, "PREFERENCES", (former,))
        before = [own_arrangements(joined(inputs, on), inputs) for inputs, on in problems()]

    assert chosen[0] == 3
    assert [at for at, (now, then) in enumerate(zip(chosen, before, strict=True)) if now > then] == []
    assert sum(chosen) < sum(before)


@pytest.mark.parametrize(("index", "first"), [((1,), "t0"), ((2,), "t2")])
def test_an_input_read_in_its_index_is_not_one_row(index: Key, first: str) -> None:
    """`id = 7` runs at the end of the join where the index serves a lookup: a hydration from there would read all of
    it. An index that serves no lookup is given up, and the filter is the input's again.
    """
    seven = equal(refs(SCHEMA)[0], Literal("7", BIGINT))
    sales = table(2, KnownRows(((0,),), -4, is_one=True), index, seven)
    join = joined([table(0, KnownRows()), table(1, KnownRows()), sales], (((0, 0), (1, 0)), ((1, 1), (2, 1))))

    assert isinstance(join.plan, DeltaJoin)
    begins = join.inputs[join.plan.paths[0].source]
    assert isinstance(begins, Get)
    assert begins.id == first
