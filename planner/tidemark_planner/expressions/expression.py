"""Catalyst's expressions as typed trees: one entry per allowed expression class of Spark.

    Multiply(AttributeReference, Subtract(Cast(Literal), AttributeReference))
    Call("*", (ColumnRef(0), Call("-", (Literal("1"), ColumnRef(1)))))

A class without an entry is refused by name. Literals are folded where that cannot fail; coercions stay as casts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.catalyst.spark_types import VOID, type_of
from tidemark_planner.errors import refuse, unsupported
from tidemark_planner.expressions.allowed import refuse_class
from tidemark_planner.expressions.call_classes import CLASSES
from tidemark_planner.expressions.call_forms import (
    ARITHMETIC,
    BY_ARGUMENTS,
    arithmetic,
    conditional,
    plain_call,
    try_variant,
)
from tidemark_planner.expressions.casting import cast_to, truncate_interval
from tidemark_planner.expressions.java_method_calls import lower_method
from tidemark_planner.expressions.lambdas import lambda_call, lower_higher_order, parameters
from tidemark_planner.expressions.literals import literal_of
from tidemark_planner.expressions.nested import empty_array, lower_nested
from tidemark_planner.sql.like_patterns import marked_pattern, with_backslash
from tidemark_planner.sql.try_functions import tried_aggregate, tried_operation
from tidemark_protocol.check.scalar import MAX_EXPR_NODES
from tidemark_protocol.functions.registry import call, entry
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, walk
from tidemark_protocol.plan.literals import is_valid
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, INTERVAL_TYPES, STRING, TIMESTAMP, SqlType, TypeNotSupported

# The expression that stands for each attribute id of Spark: most often a column of the row.
Columns = Mapping[int, ScalarExpr]


def lower_expression(node: CatalystNode, columns: Columns) -> ScalarExpr:
    """The typed tree of an expression over `columns` (by Spark's expression ids); raises Refusal."""
    return _Lowering(columns, ()).lower(node)


class _Lowering:
    """Lowers one expression. `common`: the expressions that enclosing With nodes share, innermost last; `variables`:
    the variables of enclosing lambdas.
    """

    def __init__(self, columns: Columns, common: tuple[ScalarExpr, ...], variables: Columns | None = None) -> None:
        self._columns = columns
        self._common = common
        self._variables = dict(variables or {})

    def lower(self, node: CatalystNode) -> ScalarExpr:
        kind = node.kind
        special = _SPECIAL.get(kind)
        if special is not None:
            return special(self, node)
        try:
            for family in (lower_nested, lower_method, lower_higher_order):
                if (found := family(node, self.lower)) is not None:
                    return found
        except TypeNotSupported as error:  # the expression makes an array or a struct of such a type
            refuse("TYPE", str(error))
        arguments = tuple(self.lower(child) for child in node.children)
        if kind in ARITHMETIC:
            return arithmetic(ARITHMETIC[kind], arguments)
        if kind in CLASSES:
            return plain_call(kind, arguments)
        named = BY_ARGUMENTS.get(kind)
        if named is None:
            refuse_class(kind)
        return named(arguments)

    def column(self, node: CatalystNode) -> ScalarExpr:
        found = self._columns.get(node.expr_id)
        if found is None:
            unsupported(
                f"a reference to {node.name} from inside a subquery", "join the two relations instead", node.name
            )
        return found

    def function(self, node: CatalystNode) -> ScalarExpr:
        """A LambdaFunction: its body, followed by its parameters."""
        own = parameters(node, len(self._variables))
        body = _Lowering(self._columns, self._common, {**self._variables, **own}).lower(node.children[0])
        return lambda_call(body, tuple(own.values()))

    def variable(self, node: CatalystNode) -> ScalarExpr:
        return self._variables[node.expr_id]

    def literal(self, node: CatalystNode) -> ScalarExpr:
        return literal_of(node)

    def alias(self, node: CatalystNode) -> ScalarExpr:
        return self.lower(node.children[0])

    def unhexed(self, node: CatalystNode) -> ScalarExpr:
        """unhex of a literal is a binary literal: sql/names.py writes X'...' so."""
        digits, binary = self.lower(node.children[0]), SqlType("binary")
        if isinstance(digits, Literal) and digits.value is not None:
            padded = "0" * (len(digits.value) % 2) + digits.value.lower()
            if is_valid(literal := Literal(padded, binary)):
                return literal
        return call("unhex", (digits,), binary)

    def outer(self, node: CatalystNode) -> ScalarExpr:
        """A column of the row that a LATERAL subquery is applied to."""
        column = node.expression("e")
        assert column is not None, "an outer reference names an attribute"
        return self.lower(column)

    def cast(self, node: CatalystNode) -> ScalarExpr:
        target, source = type_of(node.fields["dataType"]), node.children[0]
        if source.kind == "Literal" and source.fields["dataType"] == VOID:
            return Literal(None, target)
        if (empty := empty_array(source, target)) is not None:
            return empty
        if source.kind == "RaiseError":
            return self.raised(source, target)
        of = self.lower(source)
        if of.type == target and target.name in INTERVAL_TYPES:
            return truncate_interval(of, node.fields["dataType"], target)
        return cast_to(of, target)

    def raised(self, node: CatalystNode, target: SqlType) -> ScalarExpr:
        """raise_error of a literal, which Spark wraps into the message of a general error."""
        message = node.children[1].children[-1]
        if message.kind != "Literal":
            unsupported("raise_error of an expression", "write the message as a literal", "raise_error")
        return call("raise_error", (literal_of(message),), target)

    def like(self, node: CatalystNode) -> ScalarExpr:
        """LIKE. Spark writes ILIKE as LIKE of lower(text) and lower(pattern)."""
        of, pattern = node.children
        folds = pattern.kind == "Lower" and pattern.children[0].kind == "If"
        marked = pattern.children[0] if folds else pattern
        found = marked_pattern(marked) if marked.kind == "If" else None
        if found is None:
            return plain_call("Like", (self.lower(of), self.lower(pattern)))
        written = with_backslash(self.lower(found[1]), found[0], folds)
        return plain_call("Like", (self.lower(of), call("lower", (written,), STRING) if folds else written))

    def choice(self, node: CatalystNode) -> ScalarExpr:
        if tried_aggregate(node) is not None:
            unsupported("try_sum or try_avg in a window, or of a type that is not numeric", "use sum or avg", "try_")
        operation = tried_operation(node)
        if operation is None:
            return conditional("if", tuple(self.lower(c) for c in node.children))
        if operation.kind == "Cast" and operation.children[0].kind.startswith("TimestampAdd"):
            return self.never_raising(operation.children[0])  # Spark adds an interval to a time under a cast
        if operation.kind == "Cast":
            return try_variant(self.cast(operation), (self.lower(operation.children[0]),))
        if operation.kind not in ARITHMETIC:
            return self.never_raising(operation)
        arguments = tuple(self.lower(c) for c in operation.children)
        return try_variant(arithmetic(ARITHMETIC[operation.kind], arguments), arguments)

    def never_raising(self, node: CatalystNode) -> ScalarExpr:
        """A try_ function whose operation cannot fail, such as days added to a date."""
        made = self.lower(node)
        if not isinstance(made, Call) or entry(made.function).errors(made) or made.function == "if":
            unsupported("a try_ function of a type that is not numeric", "use the function without try_", "try_")
        return made

    def connective(self, node: CatalystNode) -> ScalarExpr:
        """AND or OR of any number of arguments; Spark's have two."""
        function, kind, pending = node.kind.lower(), node.kind, [node]
        arguments: list[ScalarExpr] = []
        while pending:
            at = pending.pop()
            if at.kind == kind:
                pending.extend(reversed(at.children))
            else:
                lowered = self.lower(at)
                nested = isinstance(lowered, Call) and lowered.function == function
                arguments.extend(lowered.arguments if nested and isinstance(lowered, Call) else (lowered,))
        return call(function, tuple(arguments), BOOLEAN)

    def case(self, node: CatalystNode) -> ScalarExpr:
        return conditional("case", tuple(self.lower(c) for c in node.children))

    def with_shared(self, node: CatalystNode) -> ScalarExpr:
        """With: its one definition is written out at each use, which is right since all functions are deterministic."""
        body, *definitions = node.children
        if len(definitions) != 1:
            refuse(
                "FORBIDDEN_FUNCTION",
                "an expression with several shared parts is not supported: compute one part in a subquery",
            )
        common = self.lower(definitions[0].children[0])
        written = _Lowering(self._columns, (*self._common, common), self._variables).lower(body)
        if sum(1 for _ in islice(walk(written), MAX_EXPR_NODES + 1)) > MAX_EXPR_NODES:
            refuse(
                "TOO_LARGE",
                f"an expression has more than {MAX_EXPR_NODES} parts once it is "
                "written out: compute parts of it in a subquery",
            )
        return written

    def shared_part(self, node: CatalystNode) -> ScalarExpr:
        if not self._common:
            refuse(
                "FORBIDDEN_FUNCTION",
                "an expression refers to a shared part that does not exist: compute it in a subquery",
            )
        return self._common[-1]

    def of_unit(self, node: CatalystNode) -> ScalarExpr:
        """timestampdiff and timestampadd: the unit is a field of the node."""
        unit = Literal(str(node.fields["unit"]).upper(), STRING)
        result = BIGINT if node.kind == "TimestampDiff" else TIMESTAMP
        made = call(node.kind.lower(), (unit, *(self.lower(c) for c in node.children)), result)
        if not entry(made.function).accepts(made):
            unsupported(
                f"{made.function} of the unit {unit.value}", "use a unit from MICROSECOND to YEAR", made.function
            )
        return made

    def subquery(self, node: CatalystNode) -> ScalarExpr:
        unsupported(_SUBQUERIES[node.kind], "put it into the SELECT list, the WHERE or the ON of a query")

    def now(self, node: CatalystNode) -> ScalarExpr:
        return call("now", (), TIMESTAMP)

    def today(self, node: CatalystNode) -> ScalarExpr:
        return call("current_date", (), DATE)

    def clock(self, node: CatalystNode) -> ScalarExpr:
        word = _CLOCK[node.kind]
        unsupported(word, "write now() or current_date(), in a filter", word)

    def user(self, node: CatalystNode) -> ScalarExpr:
        hint = "every user reads the same rows; a column of this name in an outer query needs its relation: t.user"
        unsupported("the function current_user, session_user or user", hint, "current_user()")


# Subqueries in places where lower/subquery.py does not lower them.
_SUBQUERIES = {
    "ScalarSubquery": "a scalar subquery here",
    "Exists": "EXISTS here",
    "InSubquery": "IN (subquery) here",
}
_CLOCK = {"LocalTimestamp": "localtimestamp", "CurrentTimeZone": "current_timezone", "CurrentTime": "current_time()"}
_SPECIAL: dict[str, Callable[[_Lowering, CatalystNode], ScalarExpr]] = {
    "AttributeReference": _Lowering.column,
    "Literal": _Lowering.literal,
    "LambdaFunction": _Lowering.function,
    "NamedLambdaVariable": _Lowering.variable,
    "Alias": _Lowering.alias,
    "OuterReference": _Lowering.outer,
    "Unhex": _Lowering.unhexed,
    "Cast": _Lowering.cast,
    "And": _Lowering.connective,
    "Or": _Lowering.connective,
    "CaseWhen": _Lowering.case,
    "If": _Lowering.choice,
    "Like": _Lowering.like,
    "With": _Lowering.with_shared,
    "CommonExpressionRef": _Lowering.shared_part,
    "TimestampDiff": _Lowering.of_unit,
    "TimestampAdd": _Lowering.of_unit,
    **dict.fromkeys(_SUBQUERIES, _Lowering.subquery),
    "CurrentTimestamp": _Lowering.now,
    "Now": _Lowering.now,
    "CurrentDate": _Lowering.today,
    **dict.fromkeys(_CLOCK, _Lowering.clock),
    "CurrentUser": _Lowering.user,
}
