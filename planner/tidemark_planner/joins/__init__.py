"""Joins of any number of inputs as LIR: which inputs an index serves in place, and in which order they meet.

    candidates ──use their indexes──► Problem ──linear──► plan        an index that no lookup then uses is
                      ▲                                    │          given up: its input is read as it is,
                      └──────── without the idle ones ◄────┘          with its filters below the join

Reading order: `inputs` (the problem), `equalities`, `linear`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark_planner.joins.inputs import Candidate, Key, in_place, problem
from tidemark_planner.joins.linear import linear_join
from tidemark_planner.mfp import Fused
from tidemark_protocol.expr import ScalarExpr
from tidemark_protocol.lir import Join, refs

__all__ = ["Candidate", "join_plan"]


def join_plan(candidates: Sequence[Candidate], predicates: Sequence[ScalarExpr], after: Fused) -> Join:
    """Join the inputs; `predicates` and `after` are over all their columns side by side."""
    indexed = frozenset(i for i, c in enumerate(candidates) if c.arranged is not None)
    while True:
        asked = problem(candidates, indexed, predicates, after)
        plan = linear_join(asked)
        met = dict(reversed([*in_place(plan, asked.arranged_by)]))
        if met.keys() == indexed:
            return _naming(plan, candidates, met)
        indexed = frozenset(met)


def _naming(plan: Join, candidates: Sequence[Candidate], met: Mapping[int, Key]) -> Join:
    """The join, each indexed input named by the first index that it is met in."""
    inputs = list(plan.inputs)
    for at, key in met.items():
        arranged = candidates[at].arranged
        assert arranged is not None
        get = arranged.gets[arranged.keys.index(key)]
        inputs[at] = replace(get, key=tuple(refs(get.schema)[c] for c in key))
    return replace(plan, inputs=tuple(inputs))
