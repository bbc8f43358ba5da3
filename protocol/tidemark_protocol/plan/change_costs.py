"""The cost of a changed row to an operator, in words: the state that the operator reads and computes for it.

Mfp, Get, Union     the changed rows alone: nothing is said
Reduce sum          its group's sums
Window              its whole partition
"""

from __future__ import annotations

from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    BasicReduce,
    CollationReduce,
    DistinctReduce,
    HierarchicalReduce,
    Join,
    LetRec,
    Plan,
    Reduce,
    ReducePlan,
    TopK,
    Window,
)


def cost_of_change(plan: Plan) -> str:
    """The cost as the rest of a sentence that begins with `a change`; empty for an operator that keeps no state."""
    match plan:
        case Reduce():
            return _of_reduce(plan.plan, "its group" if plan.key else "the only group")
        case Window():
            return f"computes {'its whole partition' if plan.partition else 'all rows, which are one partition,'} anew"
        case TopK():
            return f"reads the first rows of {'its group' if plan.group_key else 'the only group'}"
        case Join():
            return "looks up the rows of the other inputs with its key"
        case LetRec():
            return "runs rounds over what it reaches"
    return ""


def _of_reduce(plan: ReducePlan, group: str) -> str:
    match plan:
        case AccumulableReduce() | DistinctReduce():
            return f"reads and writes the totals of {group}"
        case HierarchicalReduce():
            return f"reads the first rows of {group}"
        case BasicReduce():
            return f"computes {group} anew from all of its rows"
        case CollationReduce():
            return "; ".join(dict.fromkeys(_of_reduce(part, group) for part in plan.parts))
