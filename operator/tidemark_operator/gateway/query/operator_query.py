"""Selections of tidemark_introspection, which the operator answers itself: also where no replica runs.

SELECT name, detail FROM tidemark_introspection.errors WHERE replica = 'r1' ORDER BY name
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.inline_rows import equalities
from tidemark_operator.introspection.relations import Row, columns_of, is_introspection, read_rows
from tidemark_operator.introspection.retained_tables import RetainedTable
from tidemark_operator.introspection.selection import is_selection
from tidemark_protocol import tracing
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.planning import PlannedOneShot, PlannedPeek
from tidemark_protocol.messages.responses import PeekRows
from tidemark_protocol.types import Column


@dataclass(frozen=True)
class OperatorQuery:
    """A selection, and the rows of its relation now. `as_of`: the time that the client asked for, or now; the rows of
    introspection are of now at every time, as replicas give them."""

    plan: PlannedPeek
    rows: Sequence[Row]
    as_of: Time
    reads: str = ""

    @property
    def answer_columns(self) -> tuple[Column, ...]:
        """The columns of the answer."""
        return self.plan.columns[: self.plan.finishing.shown]

    async def answer(self) -> PeekRows:
        """Compute the answer, in a thread."""
        with tracing.span("select", relation=str(self.plan.relation), rows=len(self.rows)):
            return await asyncio.to_thread(self._selected)

    def release(self) -> None:
        """Do nothing: no replica keeps the answer."""

    def _selected(self) -> PeekRows:
        from tidemark_operator.introspection.selected_rows import select  # Arrow takes 50 MB

        return select(self.rows, columns_of(self.plan.relation), self.plan)


def operator_query(
    context: ReconcileContext,
    namespace: str,
    plan: PlannedPeek | PlannedOneShot,
    stored: Sequence[RetainedTable],
    as_of: int | None = None,
) -> Callable[[], OperatorQuery] | None:
    """The query as of now; None where a replica has to compute it. `stored`: the rows of `retained_tables`.

    Raises:
        QueryRefused: when called, where the relation has more rows than one query may read.
    """
    if not (isinstance(plan, PlannedPeek) and is_introspection(plan.relation) and is_selection(plan)):
        return None

    def now() -> OperatorQuery:
        read = read_rows(context, namespace, plan.relation, equalities(plan.mfp), stored)
        return OperatorQuery(plan, read, Time(now_ms() if as_of is None else as_of))

    return now
