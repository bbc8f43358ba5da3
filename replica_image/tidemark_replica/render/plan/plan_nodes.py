"""The node of the plan that an operator is of, for display: found while the plan is lowered.

object 0    0 Reduce    1 Join    2 Get t    3 Get u        numbered as `explain` lists them
            `reduce`    `join`    `read t`   `read u`       operators
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.lir import Plan, preorder

PlanNode = tuple[int, int]
"""The position of an object, and the number of a node of its plan."""
_Spec = TypeVar("_Spec")


class PlanNodes:
    """Nodes by what operators are known by. An export's index, made while no plan is lowered, has none."""

    def __init__(self) -> None:
        self._numbers: dict[int, PlanNode] = {}
        self._lowered = list[PlanNode]()
        self.by_name: dict[str, PlanNode] = {}
        """The nodes, by the arrangement that an operator keeps, or the recursion."""
        self.reads: dict[str, PlanNode] = {}
        """The first node that reads an import, or an arrangement as a stream."""
        self._by_spec: dict[int, tuple[object, PlanNode]] = {}

    def number(self, objects: Iterable[BuildDesc]) -> None:
        """The objects that are lowered next."""
        for at, built in enumerate(objects):
            self._numbers |= {id(node): (at, number) for number, node in enumerate(preorder(built.plan))}

    @contextmanager
    def lowering(self, plan: Plan) -> Iterator[None]:
        """Arrangements made in the block are of the plan, or, where no object has it, of the nearest one around."""
        node = self._numbers.get(id(plan))
        if node is None:
            yield
            return
        self._lowered.append(node)
        try:
            yield
        finally:
            self._lowered.pop()

    def made(self, name: str) -> None:
        """An arrangement or a recursion is made."""
        if self._lowered:
            self.by_name.setdefault(name, self._lowered[-1])

    def read(self, name: str) -> None:
        """A stream is read from an import or an arrangement."""
        if self._lowered:
            self.reads.setdefault(name, self._lowered[-1])

    def marked(self, spec: _Spec) -> _Spec:
        """The spec of an operator, which perhaps keeps nothing of its own."""
        if self._lowered:
            self._by_spec[id(spec)] = spec, self._lowered[-1]
        return spec

    def of_spec(self, spec: object) -> PlanNode | None:
        """The node of a spec that was marked."""
        return self._by_spec[id(spec)][1] if id(spec) in self._by_spec else None
