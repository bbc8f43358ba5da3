"""The stream of transactions: transaction n always makes the same changes.

    n inserts   order n (version 0) and its 1 to 7 lines
    n amends    order n - AMEND_AFTER: version 0 out, version 1 in (other quantities)
    n deletes   the n-th oldest order: first those of the initial data, then order n - initial (version 1)

The number of orders stays constant, every kind of change occurs at all times, and retracted rows are computed again
from n. Value ranges follow the TPC-H specification, clause 4.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF
from tidemark_replica.storage.tpch.random import Draws, Ints
from tidemark_replica.storage.tpch.tables import TABLES
from tidemark_replica.values.arrow_types import arrow_schema

AMEND_AFTER = 50
_DAY = np.datetime64("1970-01-01", "D")
_FIRST_DATE = int((np.datetime64("1992-01-01") - _DAY).astype(int))
_LAST_DATE = int((np.datetime64("1998-08-02") - _DAY).astype(int))
_CURRENT_DATE = int((np.datetime64("1995-06-17") - _DAY).astype(int))
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
_MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
_ADJECTIVES = ("quick", "silent", "bold", "final", "pending", "regular", "special", "even")
_NOUNS = ("deposits", "packages", "accounts", "theodolites", "pinto beans", "requests", "ideas")
_VERBS = ("sleep", "haggle", "nag", "wake", "cajole", "detect", "integrate")


@dataclass(frozen=True)
class Population:
    """The sizes of the initial data, and the first new order key."""

    orders: int
    customers: int
    parts: int
    suppliers: int
    first_new_key: int

    @property
    def amend_after(self) -> int:
        return min(AMEND_AFTER, self.orders // 2)


@dataclass(frozen=True)
class TransactionChanges:
    """The changes of transactions: rows of orders and lineitem with `__diff`, and positions of initial orders that are
    deleted."""

    orders: pa.Table
    lineitem: pa.Table
    initial_deleted: range


def changes(population: Population, seed: int, first: int, last: int) -> TransactionChanges:
    """The changes of the transactions first..last-1."""
    stop = population.amend_after
    inserted, amended = np.arange(first, last), np.arange(max(0, first - stop), max(0, last - stop))
    gone = np.arange(max(0, first - population.orders), max(0, last - population.orders))
    versions = [(inserted, 0, 1), (amended, 0, -1), (amended, 1, 1), (gone, 1, -1)]
    made = [(orders_and_lines(population, seed, numbers, version), diff) for numbers, version, diff in versions]
    return TransactionChanges(
        pa.concat_tables([_signed(orders, diff) for (orders, _), diff in made]),
        pa.concat_tables([_signed(lines, diff) for (_, lines), diff in made]),
        range(min(first, population.orders), min(last, population.orders)),
    )


def orders_and_lines(p: Population, seed: int, numbers: Ints, version: int) -> tuple[pa.Table, pa.Table]:
    """The orders of these transactions, in this version, and their lines."""
    draw = Draws(seed, numbers)
    line_counts = 1 + draw.below("lines", 7)
    order = np.repeat(np.arange(len(numbers)), line_counts)
    line = np.arange(len(order)) - np.repeat(np.cumsum(line_counts) - line_counts, line_counts)
    date = _FIRST_DATE + draw.below("date", _LAST_DATE - _FIRST_DATE + 1)
    key = p.first_new_key + numbers
    lines, price, is_open = _lines(p, seed, numbers[order], line, date[order], key[order], version)
    total, open_lines = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    np.add.at(total, order, price)
    np.add.at(open_lines, order, is_open)
    status = np.where(open_lines == 0, 0, np.where(open_lines == line_counts, 1, 2))
    customer = 1 + draw.below("customer", p.customers)
    customer = np.where((customer % 3 == 0) & (customer > 1), customer - 1, customer)
    columns = [
        pa.array(key),
        pa.array(customer),
        _pick(("F", "O", "P"), status),
        _money(total),
        _date(date),
        _pick(_PRIORITIES, draw.below("priority", len(_PRIORITIES))),
        _numbered("Clerk#", 1 + draw.below("clerk", max(1, p.orders // 1500))),
        pa.array(np.zeros(len(numbers), np.int32)),
        _comment(draw),
    ]
    return pa.table(columns, schema=arrow_schema(TABLES["orders"].columns)), lines


def _lines(
    p: Population, seed: int, number: Ints, line: Ints, ordered: Ints, key: Ints, version: int
) -> tuple[pa.Table, Ints, Ints]:
    """Lines, each line's part of the order's total (in cents), and 1 where it is still open."""
    draw, amended = Draws(seed, number, line), Draws(seed, number, line, np.full(len(line), version))
    part = 1 + draw.below("part", p.parts)
    quantity = 1 + amended.below("quantity", 50)
    extended = quantity * (90_000 + (part // 10) % 20_001 + 100 * (part % 1000))
    discount, tax = draw.below("discount", 11), draw.below("tax", 9)
    shipped = ordered + 1 + draw.below("ship", 121)
    received = shipped + 1 + draw.below("receive", 30)
    is_open = (shipped > _CURRENT_DATE).astype(np.int64)
    returned = np.where(received <= _CURRENT_DATE, draw.below("return", 2), 2)
    columns = [
        pa.array(key),
        pa.array(part),
        pa.array(_supplier(p, part, draw.below("supplier", 4))),
        pa.array((line + 1).astype(np.int32)),
        _money(quantity * 100),
        _money(extended),
        _money(discount),
        _money(tax),
        _pick(("R", "A", "N"), returned),
        _pick(("F", "O"), is_open),
        _date(shipped),
        _date(ordered + 30 + draw.below("commit", 61)),
        _date(received),
        _pick(_INSTRUCTIONS, draw.below("instruct", len(_INSTRUCTIONS))),
        _pick(_MODES, draw.below("mode", len(_MODES))),
        _comment(draw),
    ]
    price = (extended * (100 + tax) * (100 - discount) + 5_000) // 10_000
    return pa.table(columns, schema=arrow_schema(TABLES["lineitem"].columns)), price, is_open


def _supplier(p: Population, part: Ints, which: Ints) -> Ints:
    """One of the four suppliers that partsupp lists for the part."""
    return (part + which * (p.suppliers // 4 + (part - 1) // p.suppliers)) % p.suppliers + 1


def _signed(rows: pa.Table, diff: int) -> pa.Table:
    return rows.append_column(DIFF, pa.array(np.full(rows.num_rows, diff, np.int64)))


def _money(cents: Ints) -> pa.Array:
    """Integers of cents as decimal(15,2), by their two's complement words."""
    words = np.column_stack([cents, cents >> 63])
    return pa.Array.from_buffers(pa.decimal128(15, 2), len(cents), [None, pa.py_buffer(words)])


def _date(days: Ints) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def _pick(words: Sequence[str], index: Ints) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(index))


def _numbered(prefix: str, number: Ints) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(number).cast(pa.string()), width=9, padding="0")
    return pc.binary_join_element_wise(prefix, digits, "")


def _comment(draw: Draws) -> pa.Array:
    parts = [_pick(words, draw.below(words[0], len(words))) for words in (_ADJECTIVES, _NOUNS, _VERBS)]
    return pc.binary_join_element_wise(*parts, " ")
