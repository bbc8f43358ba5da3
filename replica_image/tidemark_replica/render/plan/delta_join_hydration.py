"""A delta join at hydration: one lookup after the other, and arrangements beside them.

    DeltaKernel (a by x; b by x, y; c by y)           Concat
      path of a: b by x, c by y               ──>       HalfJoin c by y        the output
                                                          met: c
                                                          stream: HalfJoin b by x
                                                                    met: b
                                                                    stream: a
                                                        arrange a by x, arrange b by y     for the other paths, later

In a dataflow's only step nothing is arranged for other paths.

An input with several arrangements is read once for each, so it must be repeatable: it may hold no stateful operator.
Its errors come out once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.kernels.flat_map import FlatMapSpec
from tidemark_replica.kernels.joins.delta_join import DeltaSpec, of_first_path
from tidemark_replica.kernels.joins.half_join import ArrangementLookup
from tidemark_replica.kernels.joins.half_join_path import ArrangeInputSpec, HalfJoinSpec
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.jvm_frames import Frame, nodes_of

_REPEATABLE = (
    p.JvmInput,
    p.Source,
    p.IndexSource,
    p.ReadPublished,
    p.ReadPublishedErrors,
    p.Constants,
    p.Project,
    p.Compute,
    p.NegateDiffs,
    p.Concat,
)


class OneTaskOnly(Exception):
    """A fragment has an operator that must run in one task."""


def hydration_path(
    tree: p.DeltaKernel, layouts: Mapping[ArrangementId, Layout], below: tuple[Frame, ...], *, only_step: bool = False
) -> p.Pipeline:
    """The join as lookups on its first path. `below`: the frames of the tree's JvmInputs. `only_step`: without
    arrangements for other paths. Raises OneTaskOnly.
    """
    spec, inputs = tree.spec, tree.inputs
    if only_step:
        spec = replace(spec, inputs=of_first_path(spec))
    path = spec.inputs[0].path
    met = {lookup.arrangement for lookup in path}
    arranged = [(at, a) for at, each in enumerate(spec.inputs) for a in each.arrangements]
    for at, each in enumerate(inputs):
        reads = sum(1 for input, _ in arranged if input == at) + (at == 0)
        if reads > 1 and not _repeatable(each, below):
            raise OneTaskOnly
    stream, types = inputs[0], spec.inputs[0].types
    for lookup in path:
        output = _output(lookup, types, layouts[lookup.arrangement])
        is_index = not spec.inputs[lookup.input].arrangements
        joined = HalfJoinSpec(lookup, types, output, _arranged_input(spec, lookup, output), is_index)
        stream = p.HalfJoinKernel(joined, p.Concat(()) if lookup.shared else inputs[lookup.input], stream)
        types = output
    others = [
        p.Kernel(ArrangeInputSpec(a, spec.inputs[at].types, types, errors=_comes_out(spec, at, a)), inputs[at])
        for at, a in arranged
        if a not in met
    ]
    return p.Concat((stream, *others))


def _arranged_input(spec: DeltaSpec, lookup: ArrangementLookup, output: p.Types) -> ArrangeInputSpec | None:
    if lookup.shared:
        return None
    errors = _comes_out(spec, lookup.input, lookup.arrangement)
    return ArrangeInputSpec(lookup.arrangement, spec.inputs[lookup.input].types, output, errors)


def _comes_out(spec: DeltaSpec, at: int, arrangement: ArrangementId) -> bool:
    """Whether an input's errors come out at this arrangement. Errors of the first input come with its path."""
    return at > 0 and arrangement == spec.inputs[at].arrangements[0]


def _output(lookup: ArrangementLookup, types: p.Types, layout: Layout) -> p.Types:
    width = len(types)
    return tuple(types[c] if c < width else layout.types[c - width] for c in lookup.output)


def _repeatable(tree: p.Pipeline, below: tuple[Frame, ...]) -> bool:
    """Whether a stream can be read several times: it is recomputed from what a step does not change."""
    nodes = list(p.nodes_of(tree))
    beneath = [n for node in nodes if isinstance(node, p.JvmInput) for n in nodes_of(below[node.slot])]
    return all(
        isinstance(node, _REPEATABLE) or (isinstance(node, p.Kernel) and isinstance(node.spec, FlatMapSpec))
        for node in (*nodes, *beneath)
    )
