"""The transaction stream is a function of its numbers, and retracts only existing rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemark_persist import DIFF, consolidate
from tidemark_replica.storage.tpch.transactions import Population, changes

SMALL = Population(orders=120, customers=15, parts=20, suppliers=10, first_new_key=481)
AFTER = 60  # SMALL.amend_after is 50: enough for every kind of change


def contents(last: int, first: int = 0, seed: int = 7) -> pa.Table:
    """Net changes to lineitem of the transactions first..last-1."""
    return consolidate(changes(SMALL, seed, first, last).lineitem)


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(r.values()) for r in table.to_pylist()), key=repr)


def test_the_same_numbers_give_the_same_rows_and_another_seed_others() -> None:
    """Definite, and really seeded."""
    assert rows(contents(40)) == rows(contents(40))
    assert rows(contents(40)) != rows(contents(40, seed=8))


@pytest.mark.parametrize("cut", [1, 50, 51, 119, 121, 260])
def test_split_transactions_add_up(cut: int) -> None:
    """Two ranges, one after the other, change what one range changes."""
    both = pa.concat_tables([changes(SMALL, 7, 0, cut).lineitem, changes(SMALL, 7, cut, 300).lineitem])

    assert rows(consolidate(both)) == rows(contents(300))


def test_nothing_is_retracted_that_was_not_there() -> None:
    """Only generated rows are retracted by value here, so no net multiplicity is negative."""
    for last in (49, 51, 130, 400):
        assert min(contents(last).column(DIFF).to_pylist()) == 1


def test_the_number_of_orders_stays_what_it_was() -> None:
    """One in, one out."""
    done = changes(SMALL, 7, 0, 500)
    net = sum(done.orders.column(DIFF).to_pylist()) - len(done.initial_deleted)

    assert net == 0
    assert done.initial_deleted == range(120)


def test_an_amended_order_keeps_its_key_and_changes_its_lines() -> None:
    """Transaction 50 amends order 0."""
    before = {r["o_orderkey"]: r["o_totalprice"] for r in changes(SMALL, 7, 0, 1).orders.to_pylist()}
    step = [r for r in changes(SMALL, 7, 50, 51).orders.to_pylist() if r["o_orderkey"] in before]

    assert sorted(r[DIFF] for r in step) == [-1, 1]
    assert {r["o_totalprice"] for r in step if r[DIFF] == -1} == set(before.values())


def test_an_orders_total_is_the_sum_of_its_lines() -> None:
    """To the cent, as clause 4.2.3 of the specification defines it."""
    done = changes(SMALL, 7, 0, 30)
    total = {r["o_orderkey"]: 0 for r in done.orders.to_pylist()}
    for line in done.lineitem.to_pylist():
        price = line["l_extendedprice"] * (1 + line["l_tax"]) * (1 - line["l_discount"])
        total[line["l_orderkey"]] += int(price * 100 + pa.scalar("0.5").cast(pa.decimal128(2, 1)).as_py())

    assert {r["o_orderkey"]: int(r["o_totalprice"] * 100) for r in done.orders.to_pylist()} == total
