"""Higher-order functions over arrays: transform, filter, exists, forall, aggregate, zip_with, array_sort.

    transform(a, x -> x + c1)     Call("transform", (a, Call("lambda", (x + c1, x))))     x = Call("variable", ("x0",))

The parameters of a lambda follow its body. The result of a body has a fixed width, or is made of the element alone, so
results are as large as arrays, not as their squares. An accumulator has a fixed width, so it cannot grow.
"""

from __future__ import annotations

from tidemark_protocol.functions.call_errors import always
from tidemark_protocol.functions.call_types import types_of
from tidemark_protocol.functions.entry import LAMBDA, Function, first_argument, is_lambda, maybe
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr, walk
from tidemark_protocol.types import BOOLEAN, INT, INTERVAL_TYPES, STRING, SqlType

VARIABLE = "variable"
Arguments = tuple[ScalarExpr, ...]


def is_fixed_width(of: SqlType) -> bool:
    if of.is_struct:
        return all(map(is_fixed_width, of.children))
    return not of.is_array and of.name not in ("string", "binary")


def names_of(function: Call) -> tuple[str, ...]:
    """The names of a lambda's parameters."""
    return tuple(_name(parameter) for parameter in function.arguments[1:])


def renamed(expr: ScalarExpr, names: tuple[tuple[str, str], ...] = ()) -> ScalarExpr:
    """The expression with variables named by nesting depth: equal for expressions that differ by names alone."""
    if not isinstance(expr, Call):
        return expr
    if expr.function == VARIABLE:
        found = next((new for old, new in reversed(names) if old == _name(expr)), _name(expr))
        return Call(VARIABLE, (Literal(found, STRING),), expr.type, expr.nullable)
    if expr.function == LAMBDA:
        new = ((old, f"x{len(names) + at}") for at, old in enumerate(names_of(expr)))
        names = (*names, *new)
    arguments = tuple(renamed(a, names) for a in expr.arguments)
    return Call(expr.function, arguments, expr.type, expr.nullable)


def unbound(expr: ScalarExpr, known: frozenset[tuple[str, SqlType]] = frozenset()) -> bool:
    """Whether the expression reads a variable that no enclosing lambda binds."""
    if not isinstance(expr, Call):
        return False
    if expr.function == VARIABLE:
        return (_name(expr), expr.type) not in known
    if expr.function == LAMBDA:
        named = {(_name(p), p.type) for p in expr.arguments[1:]}
        known = frozenset(k for k in known if k[0] not in {n for n, _ in named}) | named
    return any(unbound(a, known) for a in expr.arguments)


def _name(variable: ScalarExpr) -> str:
    name = variable.arguments[0] if isinstance(variable, Call) else None
    return str(name.value) if isinstance(name, Literal) else ""


def _variable(arguments: Arguments, result: SqlType) -> bool:
    name = arguments[0]
    return isinstance(name, Literal) and name.type == STRING and (name.value or "").isidentifier()


def _function(arguments: Arguments, result: SqlType) -> bool:
    parameters = arguments[1:]
    variables = all(isinstance(p, Call) and p.function == VARIABLE for p in parameters)
    return variables and arguments[0].type == result and result.name not in INTERVAL_TYPES


def _takes(function: ScalarExpr, *parameters: SqlType) -> bool:
    return isinstance(function, Call) and is_lambda(function) and types_of(function.arguments[1:]) == parameters


def _stays_small(function: ScalarExpr) -> bool:
    """Whether the body has a fixed width, or reads parameters and columns of fixed width alone."""
    assert isinstance(function, Call), "the caller has checked that it is a lambda"
    if is_fixed_width(function.type):
        return True
    own = {names_of(n) for n in walk(function) if isinstance(n, Call) and n.function == LAMBDA}
    mine = {name for names in own for name in names}
    read = (n for n in walk(function.arguments[0]) if isinstance(n, ColumnRef) or _is_outer(n, mine))
    return all(is_fixed_width(n.type) for n in read)


def _is_outer(node: ScalarExpr, mine: set[str]) -> bool:
    return isinstance(node, Call) and node.function == VARIABLE and _name(node) not in mine


def _transform(arguments: Arguments, result: SqlType) -> bool:
    of, function = arguments
    if not of.type.is_array or not (_takes(function, of.type.element) or _takes(function, of.type.element, INT)):
        return False
    return result == SqlType.array(function.type) and _stays_small(function)


def _filter(arguments: Arguments, result: SqlType) -> bool:
    of, function = arguments
    takes = of.type.is_array and (_takes(function, of.type.element) or _takes(function, of.type.element, INT))
    return takes and function.type == BOOLEAN and result == of.type


def _predicate(arguments: Arguments, result: SqlType) -> bool:
    of, function = arguments
    return of.type.is_array and _takes(function, of.type.element) and function.type == BOOLEAN == result


def _aggregate(arguments: Arguments, result: SqlType) -> bool:
    of, start, merge, finish = arguments
    kept = start.type
    if not of.type.is_array or not is_fixed_width(kept) or merge.type != kept:
        return False
    return _takes(merge, kept, of.type.element) and _takes(finish, kept) and finish.type == result


def _zip_with(arguments: Arguments, result: SqlType) -> bool:
    left, right, function = arguments
    if not (left.type.is_array and right.type.is_array):
        return False
    takes = _takes(function, left.type.element, right.type.element)
    return takes and result == SqlType.array(function.type) and _stays_small(function)


def _array_sort(arguments: Arguments, result: SqlType) -> bool:
    of, function = arguments
    return of.type.is_array and of.type == result and _takes(function, *[of.type.element] * 2) and function.type == INT


LAMBDAS = (
    Function(VARIABLE, 1, 1, _variable, nullable=maybe),
    Function(LAMBDA, 2, 3, _function, nullable=first_argument),
    Function("transform", 2, 2, _transform, nullable=first_argument, higher_order=True),
    Function("filter", 2, 2, _filter, nullable=first_argument, higher_order=True),
    *(Function(n, 2, 2, _predicate, nullable=maybe, higher_order=True) for n in ("exists", "forall")),
    Function("aggregate", 4, 4, _aggregate, nullable=maybe, higher_order=True),
    Function("zip_with", 3, 3, _zip_with, nullable=maybe, higher_order=True),
    Function("array_sort", 2, 2, _array_sort, always("COMPARATOR_RETURNS_NULL"), first_argument, higher_order=True),
)
