"""Arrangements of tables that are kept whether an aggregate goes before its join or not.

    by_part   Aggregate                        beside     Join on l_partkey = p_partkey
                Join on l_partkey = p_partkey               Scan lineitem [l_partkey, l_tax]
                  Scan lineitem [l_partkey]                 Scan part

`share_tables` keeps one arrangement of lineitem for both joins. Where the second one keeps it anyway, groups of its
rows would be kept beside it: the first reads it as it is. Where aggregates go before all joins that would share it,
each has groups of its own: they have to save as much together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_planner.hir.nodes import Scan
from tidemark_planner.lir.hir_to_lir import to_lir
from tidemark_planner.lir.imports import Imports
from tidemark_planner.lir.mfp import fuse
from tidemark_planner.lir.reduced_inputs import ReducedInput, pays
from tidemark_planner.lir.shared_tables import TableRows, reads_of_tables, rows_of_table
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import BuildDesc


@dataclass(frozen=True)
class _Read:
    """Some rows and columns of a table, and the keys by which other inputs of a join look them up."""

    rows: TableRows
    columns: frozenset[int]
    keys: frozenset[frozenset[int]]

    def serves(self, other: _Read) -> bool:
        """Whether its arrangements are all that the other reads."""
        return self.rows == other.rows and other.columns <= self.columns and other.keys <= self.keys


def needless_reductions(objects: Sequence[BuildDesc], imports: Imports) -> frozenset[ReducedInput]:
    """The inputs of tables that were reduced first in these objects, and are better not."""
    tables = frozenset(i.id for i in imports.of([built.plan for built in objects])[0])
    kept = [_Read(r.rows, r.columns, frozenset(r.keys)) for r in reads_of_tables(objects, tables)]
    found = tuple(imports.reduced_inputs.reduced.values())
    reduced = [(each, read) for each in found if (read := _read(each, tables, imports)) is not None]

    def is_better_not(each: ReducedInput, read: _Read) -> bool:
        sharing = sum(read.serves(other) for _, other in reduced)
        return any(other.serves(read) for other in kept) or not pays(each.gain, sharing)

    return frozenset(each for each, read in reduced if is_better_not(each, read))


def _read(reduced: ReducedInput, tables: frozenset[GlobalId], imports: Imports) -> _Read | None:
    """The table that is read; None where the input has other rows than those of a table."""
    if not isinstance(fuse(reduced.input)[0], Scan):
        return None
    rows, place = rows_of_table(to_lir(reduced.input, imports), tables)
    if rows is None:
        return None
    return _Read(rows, frozenset(place), frozenset(frozenset(place[c] for c in key) for key in reduced.keys))
