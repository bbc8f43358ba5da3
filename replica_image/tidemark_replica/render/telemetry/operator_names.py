"""The names of operators for display: what an operator does, and the name of what it reads or keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tidemark_protocol.ids import GlobalId
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.kernels.changes import ChangesSpec
from tidemark_replica.kernels.groups.reevaluated_groups import ReevaluatedGroupsSpec
from tidemark_replica.kernels.joins.half_join_path import ArrangeInputSpec
from tidemark_replica.kernels.joins.self_join import SelfJoinSpec
from tidemark_replica.kernels.ranking.extremes import ExtremesSpec
from tidemark_replica.kernels.ranking.partial_first_rows import PartialFirstRowsSpec
from tidemark_replica.kernels.ranking.top_k import TopKSpec
from tidemark_replica.kernels.recursion.recursion_limit import RecursionLimitSpec
from tidemark_replica.kernels.reduce.partial_sums import PartialSumsSpec
from tidemark_replica.kernels.reduce.reduce import ReduceSpec
from tidemark_replica.kernels.temporal import TemporalSpec
from tidemark_replica.kernels.threshold import ThresholdSpec
from tidemark_replica.kernels.window.window import WindowFunction
from tidemark_replica.render.plan import pipeline as p

_KERNELS: Mapping[type, tuple[str, str]] = {
    RecursionLimitSpec: ("limit of iterations", "LetRec"),
    ChangesSpec: ("changes", "Changes"),
    ExtremesSpec: ("min/max", "Reduce"),
    ReevaluatedGroupsSpec: ("groups", "Reduce"),
    ArrangeInputSpec: ("arrange", "Reduce"),
    SelfJoinSpec: ("join", "Join"),
    PartialFirstRowsSpec: ("partial top-k", "Reduce"),
    PartialSumsSpec: ("partial sums", "Reduce"),
    ReduceSpec: ("reduce", "Reduce"),
    TemporalSpec: ("temporal filter", "Mfp"),
    ThresholdSpec: ("threshold", "Threshold"),
    TopKSpec: ("top-k", "TopK"),
}
"""The name, and the word of `explain`."""


def name_operator(node: p.Pipeline, ids: Mapping[ArrangementId, GlobalId]) -> tuple[str, str] | None:
    """The name of a node, and its word of `explain`; None for a node without state that reads nothing from outside.
    `ids`: those of indexes."""
    match node:
        case p.Source(id):
            return f"read {plain_name(id)}", "Get"
        case p.IndexSource(arrangement):
            return (f"read {plain_name(ids[arrangement])}", "Get") if arrangement in ids else None
        case p.ArrangeKernel(arrangement):
            return f"index {plain_name(ids[arrangement])}" if arrangement in ids else "arrange", "ArrangeBy"
        case p.JoinKernel() | p.DeltaKernel() | p.HalfJoinKernel():
            return "join", "Join"
        case p.Kernel(ReevaluatedGroupsSpec(function=WindowFunction())):
            return "groups", "Window"
        case p.Kernel(spec):
            return _KERNELS.get(type(spec))
        case p.ContinualTaskKernel():
            return "at changes", "Changes"
        case p.LoopInTask():
            return "recursion", "LetRec"
        case _:
            return None


def numbered(names: Sequence[str]) -> list[str]:
    """The names, those that occur several times numbered in their order."""
    often, seen = Counter(names), Counter[str]()
    made = []
    for name in names:
        seen[name] += 1
        made.append(name if often[name] == 1 else f"{name} {seen[name]}")
    return made


def plain_name(id: GlobalId) -> str:
    """The name in an id `owner/name/...`."""
    parts = id.split("/")
    return parts[1] if len(parts) > 1 else id
