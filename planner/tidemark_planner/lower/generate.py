"""Generate: table functions, and LATERAL over them.

SELECT k, e FROM t LATERAL VIEW explode(a) q AS e         FlatMap explode [c1]
                                                            Scan t
explode(sequence(1, k))      FlatMap sequence: its values are never in one array
inline(a)                    explode, and the fields of its value
stack(2, a, b, c, d)         explode(array(struct(a, b), struct(c, d))), and the fields
range(1, 10)                 a sequence over one row
t, LATERAL explode(t.a)      as LATERAL VIEW: the function is over the row of t
t LEFT JOIN LATERAL ...      the outer form of one function; else the inner join, and NULLs beside the rows of t without
                             a match (an anti join on all columns, since equal rows have equal matches)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidemark_planner.catalyst.json_tree import CatalystNode, parse_tree, walk
from tidemark_planner.catalyst.spark_types import VOID, type_of
from tidemark_planner.errors import refuse, unsupported
from tidemark_planner.expressions.casting import cast_to
from tidemark_planner.hir.nodes import Filter, FlatMap, Match, MatchKind, Project, Union, Values
from tidemark_planner.hir.nodes import columns as all_columns
from tidemark_planner.lower.base import Context, Lowered, attributes_of
from tidemark_planner.lower.cte import share
from tidemark_protocol.functions.registry import call
from tidemark_protocol.functions.table_functions import MAX_VALUES, produces
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, INT, ColumnType, SqlType

MICROS_PER_DAY = 86_400_000_000


@dataclass(frozen=True)
class _Generator:
    """A table function of the allow-list. `fields`: its values are structs, whose fields become the columns.

    `ordinality`: the position of the value is shown behind it, counted from 1, in this type.
    """

    function: str
    arguments: tuple[ScalarExpr, ...]
    fields: bool = False
    ordinality: SqlType | None = None


def lower_generate(node: CatalystNode, context: Context) -> Lowered:
    return _apply_generator(node, context.lower(node.children[0]), bool(node.fields["outer"]))


def lower_range(node: CatalystNode, context: Context) -> Lowered:
    """range(): Spark has checked its arguments, which are literals."""
    start, end, step = (int(node.fields[f]) for f in ("start", "end", "step"))
    count = len(range(start, end, step))
    if count > MAX_VALUES:
        refuse(
            "TOO_LARGE",
            f"range() has {count} rows, more than the limit of {MAX_VALUES}: choose a smaller range",
            word="range",
        )
    attributes, names = attributes_of(node.expressions("output"))
    schema = (ColumnType(BIGINT, False),)
    if not count:
        return Lowered(Values((), schema), attributes, names)
    arguments = tuple(Literal(str(n), BIGINT) for n in (start, start + (count - 1) * step, step))
    return Lowered(FlatMap(Values(((),), ()), "sequence", arguments, schema), attributes, names)


def lower_lateral(node: CatalystNode, context: Context) -> Lowered:
    """LATERAL over table functions: the rows of the subquery are those of the functions, applied to the row on the
    left.
    """
    kind = str(node.fields["joinType"].get("object") or "").rsplit(".", 1)[-1].rstrip("$")
    subquery = node.expression("right")
    if subquery is None or kind not in ("Inner", "Cross", "LeftOuter"):
        unsupported("this form of LATERAL", "use CROSS JOIN LATERAL or LEFT JOIN LATERAL", "LATERAL")
    tree, condition = parse_tree(subquery.fields["plan"]), node.expression("condition")
    left, outer = context.lower(node.children[0]), kind == "LeftOuter"
    if condition is not None and condition.kind == "Literal" and condition.fields["value"] == "true":
        condition = None
    if outer and (condition is not None or not _is_one_function(tree)):
        return _left_outer_lateral(tree, left, condition, context)
    joined = _apply_subquery(tree, left, outer)
    return joined if condition is None else _filter(joined, condition)


def _is_one_function(node: CatalystNode) -> bool:
    """Whether the rows of the subquery are those of one table function; its outer form then gives the row of NULLs."""
    kinds = [n.kind for n in walk(node)]
    plain = all(_is_column(o) for n in walk(node) for o in n.expressions("projectList"))
    return plain and "Filter" not in kinds and kinds.count("Generate") == 1


def _is_column(output: CatalystNode) -> bool:
    while output.kind == "Alias":
        output = output.children[0]
    return output.kind == "AttributeReference"


def _left_outer_lateral(node: CatalystNode, left: Lowered, condition: CatalystNode | None, context: Context) -> Lowered:
    """The rows on the left beside their rows of the subquery, and beside NULLs where they have none."""
    rows = replace(left, hir=share(left.hir, context))
    made = _apply_subquery(node, rows, outer=False)
    made = made if condition is None else _filter(made, condition)
    made = replace(made, hir=share(made.hir, context))
    width, row = len(left.attributes), all_columns(made.hir)
    keys = tuple(call("<=>", (c, replace(c, index=width + c.index)), BOOLEAN) for c in row[:width])
    alone = Match(MatchKind.ANTI, rows.hir, Project(made.hir, row[:width]), keys)
    nothing = tuple(Literal(None, c.type) for c in row[width:])
    both = Union((made.hir, Project(alone, (*all_columns(alone), *nothing))))
    return replace(made, hir=both)


def _filter(rows: Lowered, condition: CatalystNode) -> Lowered:
    return replace(rows, hir=Filter(rows.hir, (rows.expression(condition),)))


def _apply_subquery(node: CatalystNode, left: Lowered, outer: bool) -> Lowered:
    """The subquery's plan applied to the row on the left, whose columns stay in front."""
    if node.kind == "OneRowRelation":
        return left
    if node.kind not in ("SubqueryAlias", "Generate", "Project", "Filter"):
        unsupported(
            "LATERAL over a query of relations", "use expressions and table functions such as explode", "LATERAL"
        )
    below = _apply_subquery(node.children[0], left, outer)
    if node.kind == "SubqueryAlias":
        return below
    if node.kind == "Generate":
        return _apply_generator(node, below, outer or bool(node.fields["outer"]))
    if node.kind == "Filter":
        condition = node.expression("condition")
        assert condition is not None, "a filter has a condition"
        return _filter(below, condition)
    outputs = node.expressions("projectList")
    exprs = tuple(below.expression(o) for o in outputs)
    kept, (attributes, names) = all_columns(left.hir), attributes_of(outputs)
    return Lowered(Project(below.hir, (*kept, *exprs)), left.attributes + attributes, left.names + names)


def _apply_generator(node: CatalystNode, below: Lowered, outer: bool) -> Lowered:
    """The rows below, and beside each the function's values."""
    described = node.expression("generator")
    lower = _GENERATORS.get(described.kind) if described is not None else None
    if described is None or lower is None:
        name = described.kind.lower() if described else ""
        unsupported(f"the table function {name}", "use explode, posexplode, inline, stack, sequence or range", name)
    outputs = node.expressions("generatorOutput")
    generator = lower(described, below, outputs)
    function = generator.function + "_outer" * outer
    made = produces(function, [a.type for a in generator.arguments])
    if made is None:
        of = ", ".join(str(a.type) for a in generator.arguments)
        unsupported(f"the table function {generator.function} of {of}", "cast its arguments", generator.function)
    attributes, names = attributes_of(outputs)
    width = len(below.attributes)
    flat = FlatMap(below.hir, function, generator.arguments, made)
    whole = Lowered(flat, below.attributes + attributes, below.names + names)
    value = ColumnRef(width + len(made) - 1, made[-1].type, made[-1].nullable)
    if generator.ordinality is not None:
        place = cast_to(ColumnRef(width, INT, made[0].nullable), generator.ordinality)
        following = call("+", (place, Literal("1", generator.ordinality)), generator.ordinality)
        return Lowered(Project(flat, (*all_columns(below.hir), value, following)), whole.attributes, whole.names)
    if not generator.fields:
        return whole
    positions = (Literal(str(at), INT) for at in range(len(value.type.children)))
    fields = tuple(call("field", (value, p), t) for p, t in zip(positions, value.type.children, strict=True))
    return Lowered(Project(flat, (*all_columns(below.hir), *fields)), whole.attributes, whole.names)


def _explode(node: CatalystNode, below: Lowered, outputs: Sequence[CatalystNode]) -> _Generator:
    of = node.children[0]
    if of.kind == "Sequence":
        return _Generator("sequence", _sequence(of, below))
    return _Generator("explode", (below.expression(of),))


def _posexplode(node: CatalystNode, below: Lowered, outputs: Sequence[CatalystNode]) -> _Generator:
    return _Generator("posexplode", (below.expression(node.children[0]),))


def _inline(node: CatalystNode, below: Lowered, outputs: Sequence[CatalystNode]) -> _Generator:
    return _Generator("explode", (below.expression(node.children[0]),), fields=True)


def _stack(node: CatalystNode, below: Lowered, outputs: Sequence[CatalystNode]) -> _Generator:
    """Rows of as many values as there are columns; missing values at the end are NULL."""
    types = [type_of(o.fields["dataType"]) for o in outputs]
    values = node.children[1:]
    starts = range(0, len(values), len(types))
    rows = [tuple(_cell(values[at + n : at + n + 1], t, below) for n, t in enumerate(types)) for at in starts]
    struct = SqlType.struct((f"c{n}", t) for n, t in enumerate(types))
    made = tuple(call("named_struct", row, struct) for row in rows)
    return _Generator("explode", (call("array", made, SqlType.array(struct)),), fields=True)


def _cell(value: Sequence[CatalystNode], of: SqlType, below: Lowered) -> ScalarExpr:
    if not value or (value[0].kind == "Literal" and value[0].fields["dataType"] == VOID):
        return Literal(None, of)
    return cast_to(below.expression(value[0]), of)


def _unnest(node: CatalystNode, below: Lowered, outputs: Sequence[CatalystNode]) -> _Generator:
    if len(node.children) != 1:
        unsupported("UNNEST of several arrays", "unnest arrays_zip of them", "UNNEST")
    arguments = (below.expression(node.children[0]),)
    if not node.fields.get("withOrdinality"):
        return _Generator("explode", arguments)
    return _Generator("posexplode", arguments, ordinality=type_of(outputs[-1].fields["dataType"]))


def _sequence(node: CatalystNode, below: Lowered) -> tuple[ScalarExpr, ...]:
    arguments = tuple(below.expression(child) for child in node.children)
    if len(arguments) < 3 or arguments[0].type.is_integral:
        return arguments
    step = arguments[2]
    if arguments[0].type != DATE or step.type.name != "interval day to second" or not isinstance(step, Literal):
        unsupported("a sequence of times, or of dates by months", "use dates and a literal number of days", "sequence")
    days, rest = divmod(int(step.value or 0), MICROS_PER_DAY)
    if rest or step.value is None:
        unsupported("a sequence of dates by parts of a day", "use a whole number of days", "sequence")
    return (*arguments[:2], Literal(str(days), INT))


_GENERATORS: dict[str, Callable[[CatalystNode, Lowered, Sequence[CatalystNode]], _Generator]] = {
    "Explode": _explode,
    "PosExplode": _posexplode,
    "Inline": _inline,
    "Stack": _stack,
    "Unnest": _unnest,
}
