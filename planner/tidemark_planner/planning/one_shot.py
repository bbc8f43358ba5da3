"""Any SELECT, read once: `plan_query(request) -> PlannedPeek | PlannedOneShot | Refused`.

    SELECT s, count(*) FROM t GROUP BY s ORDER BY 2 DESC LIMIT 3

    dataflow: TopK 3 by c1 over Reduce over t,         finishing: by c1 descending, limit 3
    one index (c0, c1)

The caller creates the dataflow with the as_of that it wants, peeks its index at that time with the finishing, and drops
it. A query that reads one export and needs no operators is planned as a peek of that export (peek.py), which is
cheaper.
"""

from __future__ import annotations

from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.errors import Refusal
from tidemark_planner.lower import Context, Lowered
from tidemark_planner.lower.row_order import OrderAndLimit, split_order_and_limit
from tidemark_planner.planning.assemble import assemble, check_settings, fits_wire
from tidemark_planner.planning.peek import plan_peek
from tidemark_planner.planning.positions import with_positions
from tidemark_planner.planning.query import lower_query
from tidemark_planner.planning.result_finishing import finish_query, first_rows
from tidemark_planner.rules import optimise
from tidemark_planner.sql.names import scope_of
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import PlannedExport, PlannedOneShot, PlannedPeek, PlanQueryRequest, Refused
from tidemark_protocol.types import Column

RESULT = "result"


def plan_query(catalyst: Catalyst, request: PlanQueryRequest) -> PlannedPeek | PlannedOneShot | Refused:
    """The cheapest plan that answers the query, or the reasons why its SQL is refused. Raises CatalystFailed."""
    try:
        return _plan(catalyst, request)
    except Refusal as refusal:
        return Refused(with_positions(refusal, request.sql).diagnostics)


def _plan(catalyst: Catalyst, request: PlanQueryRequest) -> PlannedPeek | PlannedOneShot:
    check_settings(request.settings, request.dialect)
    ordering, has_ctes = OrderAndLimit(), False

    def lower(tree: CatalystNode, context: Context) -> Lowered:
        nonlocal ordering, has_ctes
        rows, ordering = split_order_and_limit(tree)
        has_ctes = rows.kind == "WithCTE"
        return context.lower(rows)

    def object_id(number: int) -> GlobalId:
        return GlobalId(f"{request.id_prefix}{RESULT}/cte{number}")

    scope = scope_of(request.catalogue, ())
    query = lower_query(catalyst, request.sql, scope, object_id, lower, request.dialect)
    end = finish_query(query.lowered, ordering)
    if not (has_ctes or query.objects) and (peek := plan_peek(catalyst, request, end)) is not None:
        return peek
    hir = optimise(first_rows(end))
    built_as = GlobalId(request.id_prefix + RESULT)
    held = tuple(Column(f"c{at}", c.type, c.nullable) for at, c in enumerate(hir.schema))
    export = PlannedExport(RESULT, "index", built_as, held, tuple(range(len(held))))
    planned = assemble(catalyst, request, (*query.objects, (built_as, hir)), (export,))
    shown = list(zip(end.names, hir.schema, strict=True))[: end.finishing.shown]
    columns = tuple(Column(n, c.type, c.nullable) for n, c in shown)
    return fits_wire(PlannedOneShot(planned, end.finishing, columns))
