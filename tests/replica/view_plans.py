"""Plans of views over table t, and what they hold at a time: a copy, one with state, and one that reads the clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.replica.plans import SCHEMA
from tests.replica.tables import Row, Table
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import DistinctReduce, Get, MapFilterProject, Mfp, Plan, Reduce, refs
from tidemark_protocol.types import BIGINT

T = Get(GlobalId("t"), SCHEMA)
N, S = refs(SCHEMA)
VALID = 15
Contents = Callable[[Table, int], Counter[Row]]


def distinct(table: Table, at: int) -> Counter[Row]:
    return Counter(dict.fromkeys(table.at(at), 1))


def valid(table: Table, at: int) -> Counter[Row]:
    """Rows whose n is a time at most VALID before."""
    return Counter({row: n for row, n in table.at(at).items() if row[0] is not None and row[0] <= at < row[0] + VALID})


UNTIL = call("+", (N, Literal(str(VALID), BIGINT)), BIGINT)
VIEWS: dict[str, tuple[Plan, Contents]] = {
    "copy": (T, Table.at),
    "state": (Reduce(T, (N, S), (), DistinctReduce(), MapFilterProject.identity(SCHEMA)), distinct),
    "clock": (Mfp(T, MapFilterProject(SCHEMA, lower=(N,), upper=(UNTIL,))), valid),
}
