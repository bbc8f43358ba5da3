"""The check of WITH RECURSIVE: each part must be linear, so that evaluating it on new rows alone is enough.

    SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 9        each iteration extends the rows of the one before
    SELECT 1 AS n UNION ALL SELECT max(n) FROM r                   needs all rows: WITH MUTUALLY RECURSIVE reads them

Each part reads the name once, through operators that treat rows one by one: projections, filters, inner joins, the left
side of left, semi and anti joins, and, where UNION removes duplicates anyway, DISTINCT.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_planner.errors import refuse
from tidemark_planner.hir.nodes import (
    Aggregate,
    Filter,
    FlatMap,
    Hir,
    Join,
    LetRec,
    Match,
    MatchKind,
    Project,
    Scan,
    TopK,
    Union,
    Window,
    inputs_of,
)
from tidemark_planner.recursion.cut import SqlToken
from tidemark_protocol.ids import GlobalId

_HINT = "write WITH MUTUALLY RECURSIVE name (column type, ...) AS (...), which allows it"
_WORDS: dict[type, str] = {
    Aggregate: "an aggregate",
    LetRec: "a recursion",
    Match: "the right side of a left, semi or anti join, or a full join,",
    TopK: "LIMIT",
    Window: "a window function",
}


def check_linear(value: Hir, of: GlobalId, name: SqlToken) -> None:
    """Raise Refusal unless the recursion is linear."""
    root = value
    while isinstance(root, Project):
        root = root.input
    distinct = isinstance(root, Aggregate) and not root.aggregates
    _Check(of, name, distinct).reads(value)


@dataclass(frozen=True)
class _Check:
    of: GlobalId
    name: SqlToken
    distinct: bool

    def reads(self, node: Hir) -> bool:
        """Whether the node reads the recursion; raises Refusal where it must not."""
        if isinstance(node, Scan):
            return node.id == self.of
        found = [self.reads(below) for below in inputs_of(node)]
        if not any(found):
            return False
        if isinstance(node, Join) and sum(found) > 1:
            self._refuse(f"reading {self.name.text} twice in one part")
        if not (isinstance(node, Project | Filter | FlatMap | Join | Union) or self._takes_each(node, found)):
            self._refuse(f"{_WORDS.get(type(node), 'EXCEPT or INTERSECT')} over {self.name.text}")
        return True

    def _takes_each(self, node: Hir, found: list[bool]) -> bool:
        """Whether the node treats each row of the recursion separately."""
        if isinstance(node, Match):
            return node.kind is not MatchKind.FULL and found == [True, False]
        return self.distinct and isinstance(node, Aggregate) and not node.aggregates

    def _refuse(self, construct: str) -> None:
        message = f"{construct} is not supported in WITH RECURSIVE: {_HINT}"
        refuse("UNSUPPORTED", message, self.name.line, self.name.column, self.name.text)
