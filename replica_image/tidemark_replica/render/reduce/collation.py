"""Collation: aggregates with different kinds of state, computed apart and joined on the key.

                 ┌─> sums ─────────────────┐
    rows ──spool─┼─> distinct values ──────┤ join on the key ──> key ++ aggregates in the plan's order
                 └─> first, median ... ────┘

    out(k) = k ++ part 1(k) ++ part 2(k) ...

Every part has exactly one row per group (without a key: always one), so the join of two parts pairs each group with
itself; NULL keys match. The parts read one stream: the first part writes it to a spool that the others read.

State: that of each part, and the rows of parts other than sums, arranged by the key; those of sums are found in the
state of the sums. Cost of an update: that of the parts, and a lookup per changed group. An error of a part passes
through, and its group has no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.kernels.joins.join import JoinInput, JoinSpec
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.group_sides import order_of_groups, stored_groups
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import JoinKernel, Pipeline, ReadSpool, Spool
from tidemark_replica.render.reduce.grouped import Grouped


@dataclass(frozen=True)
class CollatedPart:
    """Some of a reduce's aggregates: their positions among all, and the function that lowers them."""

    positions: tuple[int, ...]
    lower: Callable[[Grouped], Stream]


def collate(scope: Scope, rows: Grouped, parts: Sequence[CollatedPart]) -> Stream:
    """Lower the parts and join them to key ++ all aggregates, in the plan's order."""
    streams = [part.lower(each) for part, each in zip(parts, _readers(scope, rows, len(parts)), strict=True)]
    width, joined = len(rows.key), streams[0]
    for stream in streams[1:]:
        joined = _joined(scope, width, joined, stream)
    places = [position for part in parts for position in part.positions]
    columns = (*range(width), *(width + places.index(i) for i in range(len(places))))
    return scope.streams.mfp(joined, MapFilterProject(joined.schema, projection=columns))


def _readers(scope: Scope, rows: Grouped, parts: int) -> list[Grouped]:
    """The input, once for every part: a spool for the first, readers of it for the others."""
    if parts == 1:
        return [rows]
    types, name = arrow_types(rows.stream.schema), scope.new_spool()
    trees: list[Pipeline] = [Spool(name, rows.stream.tree, types), *[ReadSpool(name, types)] * (parts - 1)]
    return [replace(rows, stream=Stream(tree, rows.stream.schema)) for tree in trees]


def _joined(scope: Scope, width: int, left: Stream, right: Stream) -> Stream:
    """Join two parts: the key, the aggregates of the left, those of the right."""
    spec = JoinSpec(_side(scope, width, left, 0), _side(scope, width, right, width), tuple(range(width)))
    return Stream(JoinKernel(spec, left.tree, right.tree), left.schema + right.schema[width:])


def _side(scope: Scope, width: int, part: Stream, first_kept: int) -> JoinInput:
    types, key, kept = arrow_types(part.schema), tuple(range(width)), tuple(range(first_kept, len(part.schema)))
    if scope.keeps_once and order_of_groups(part.tree, key) == key:
        return stored_groups(part.tree, types, key, kept)
    return JoinInput(scope.new_arrangement("collation", Layout.of_rows(types, key)), kept)
