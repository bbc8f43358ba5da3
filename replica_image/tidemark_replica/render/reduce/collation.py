"""Aggregates that are kept in several ways: computed apart, and put side by side.

                 ┌─> sums ─────────────────┐
    rows ──spool─┼─> distinct values ──────┤ join on the key ──> key ++ aggregates in the plan's order
                 └─> first, median ... ────┘

Every part has exactly one row per group (without a key, always one), so the join of two parts pairs each group with
itself; NULL keys meet. The parts read one stream: the first writes it to a spool that the others read.

State: each part's own, and the rows of all parts arranged by the key. Cost: the parts', and a look-up per group that
changed. A part in error shows its error, and no row of the group comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.kernels.joins.join import JoinInput, JoinSpec
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Flow, arrow_types
from tidemark_replica.render.plan.pipeline import JoinKernel, Pipeline, Spool, Spooled
from tidemark_replica.render.reduce.grouped import Grouped


@dataclass(frozen=True)
class Part:
    """Some of a reduce's aggregates: their places among all, and what renders them, as key ++ these aggregates."""

    positions: tuple[int, ...]
    lower: Callable[[Grouped], Flow]


def collate(scope: Scope, rows: Grouped, parts: Sequence[Part]) -> Flow:
    """The stream of key ++ all aggregates."""
    flows = [part.lower(each) for part, each in zip(parts, _readers(scope, rows, len(parts)), strict=True)]
    width, joined = len(rows.key), flows[0]
    for flow in flows[1:]:
        joined = _joined(scope, width, joined, flow)
    places = [position for part in parts for position in part.positions]
    columns = (*range(width), *(width + places.index(i) for i in range(len(places))))
    return scope.flows.mfp(joined, MapFilterProject(joined.schema, projection=columns))


def _readers(scope: Scope, rows: Grouped, parts: int) -> list[Grouped]:
    """The input once for every part."""
    if parts == 1:
        return [rows]
    types, name = arrow_types(rows.flow.schema), scope.new_spool()
    trees: list[Pipeline] = [Spool(name, rows.flow.tree, types), *[Spooled(name, types)] * (parts - 1)]
    return [replace(rows, flow=Flow(tree, rows.flow.schema)) for tree in trees]


def _joined(scope: Scope, width: int, left: Flow, right: Flow) -> Flow:
    """Two parts as one: the key, the left's aggregates, the right's."""
    spec = JoinSpec(_side(scope, width, left, 0), _side(scope, width, right, width), tuple(range(width)))
    return Flow(JoinKernel(spec, left.tree, right.tree), left.schema + right.schema[width:])


def _side(scope: Scope, width: int, part: Flow, first_kept: int) -> JoinInput:
    layout = Layout.of_rows(arrow_types(part.schema), range(width))
    return JoinInput(scope.new_arrangement("collation", layout), tuple(range(first_kept, len(part.schema))))
