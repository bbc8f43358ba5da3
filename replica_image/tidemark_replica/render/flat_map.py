"""FlatMap: a table function on each row; each value of the function stands beside a copy of the row.

    out[t] = row ++ value, for each row of in[t] and each value of f(row)

    SELECT k, e FROM t LATERAL VIEW explode(a) AS e       (1, [7, 8])  ──>  (1, 7) (1, 8)

State: none. Cost of an update: the output, in chunks of bounded size. The arguments are computed before the kernel:
arrays arrive as Arrow lists, a sequence as start, stop and step. Only the input columns that `mfp_after` reads are
copied. Errors: failing arguments; a sequence that leads away from its stop, or that has more values than a Spark array
may hold.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.functions.table_functions import ILLEGAL_SEQUENCE, MAX_VALUES, TOO_MANY_VALUES, table_function
from tidemark_protocol.plan.expr import columns_of
from tidemark_protocol.plan.lir import FlatMap, MapFilterProject, refs
from tidemark_replica.kernels.flat_map import FlatMapSpec
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.key_columns import key_columns
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel
from tidemark_replica.values.error_text import error_text

Apply = Callable[[Scope, Stream, MapFilterProject], Stream]


def lower_flat_map(scope: Scope, plan: FlatMap, stream: Stream, apply: Apply) -> Stream:
    """Lower a FlatMap and its `mfp_after`. Raises NotRendered for a table function that this replica does not have."""
    function = table_function(plan.function)
    if function is None:
        raise NotRendered(f"dataflow {scope.description.name}: this replica has no table function {plan.function}")
    schema = plan.input.schema
    read = sorted(c for c in _read(plan.mfp_after) if c < len(schema))
    columns = refs(schema)
    rows = key_columns(schema, (*(columns[c] for c in read), *plan.arguments))
    place = dict(zip(read, rows.positions, strict=False))
    types = arrow_types(schema)
    text = f"{plan.function}({', '.join(map(to_sql, plan.arguments))})"
    spec = FlatMapSpec(
        function.base,
        rows.positions[len(read) :],
        tuple(place.get(c, types[c]) for c in range(len(schema))),
        arrow_types(plan.produces)[-1],
        function.with_position,
        function.outer,
        error_text(ILLEGAL_SEQUENCE, text),
        error_text(TOO_MANY_VALUES, text),
        MAX_VALUES,
    )
    prepared = scope.streams.mfp(stream, rows.mfp)
    return apply(scope, Stream(Kernel(spec, prepared.tree), plan.mfp_after.input), plan.mfp_after)


def _read(mfp: MapFilterProject) -> set[int]:
    """The columns, of the input and mapped ones, that an MFP reads."""
    shown = range(len(mfp.extended)) if mfp.projection is None else mfp.projection
    expressions = (*mfp.expressions, *mfp.predicates, *mfp.lower, *mfp.upper)
    return {*shown, *(c for e in expressions for c in columns_of(e))}
