"""Whether a plan's rows may be taken back where all of them have one time, the as_of.

    TopK                     of inputs: append-only tables make this join's output one without retractions
      Join
        Get orders           of inputs
        Reduce               never: at one time a group has one row
          Negate             always
            Get lineitem

A snapshot is read as the updates of files, advanced to the as_of: rows that cancel are among them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_protocol.plan.lir import (
    Changes,
    Constant,
    Get,
    Let,
    LetRec,
    Mfp,
    Negate,
    Plan,
    Reduce,
    Threshold,
    TopK,
    Window,
    inputs_of,
    preorder,
)
from tidemark_replica.kernels.ranking.state import Retractions

_ORDER = (Retractions.NEVER, Retractions.OF_INPUTS, Retractions.ALWAYS)


class RetractionAnalysis:
    """The answers for the plans of one dataflow."""

    def __init__(self, description: DataflowDescription) -> None:
        self._objects = {built.id: built.plan for built in description.objects}
        self._bound: dict[LocalId, list[Plan]] = {}
        self._recursive: set[LocalId] = set()
        self._known: dict[GlobalId | LocalId, Retractions] = {}
        for plan in self._objects.values():
            for node in preorder(plan):
                if isinstance(node, Let):
                    self._bound.setdefault(node.id, []).append(node.value)
                elif isinstance(node, LetRec):
                    self._recursive |= {binding.id for binding in node.bindings}

    def of(self, plan: Plan) -> Retractions:
        """Whether rows of the plan, which is of an object of the dataflow, may be taken back."""
        match plan:
            case Get(id):
                return self._of_name(id)
            case Let(body=body):
                return self.of(body)
            case Constant():
                return _of_constant(plan)
            case Negate() | LetRec() | Changes() | TopK(limit=None):
                return Retractions.ALWAYS
            case Mfp(mfp=mfp) if mfp.lower or mfp.upper:
                return Retractions.ALWAYS
            case Reduce() | Window() | Threshold() | TopK():
                return Retractions.NEVER
            case _:
                return _most_retractions(map(self.of, inputs_of(plan)))

    def _of_name(self, name: GlobalId | LocalId) -> Retractions:
        """Bindings of one name, which several plans may have, are taken together."""
        if name not in self._known:
            self._known[name] = Retractions.ALWAYS  # for a value that reads an outer binding of its own name
            if name in self._recursive:
                values = None
            elif name in self._objects:
                values = [self._objects[GlobalId(name)]]
            else:
                values = self._bound.get(LocalId(name), [])
            if values is not None:
                self._known[name] = _most_retractions(map(self.of, values)) if values else Retractions.OF_INPUTS
        return self._known[name]


def _most_retractions(found: Iterator[Retractions]) -> Retractions:
    """The answer that allows most retractions; NEVER of none."""
    return max(found, key=_ORDER.index, default=Retractions.NEVER)


def _of_constant(plan: Constant) -> Retractions:
    has_only_additions = isinstance(plan.rows, tuple) and all(row.diff > 0 for row in plan.rows)
    return Retractions.NEVER if has_only_additions else Retractions.ALWAYS
