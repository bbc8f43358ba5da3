"""The allow-list of scalar functions.

    FUNCTIONS["/"]   two arguments; double or decimal; DIVIDE_BY_ZERO unless the divisor is a literal other than 0

A function is on the list if it is deterministic, does no I/O, has a Spark SQL text that gives the same tree back, and
its errors are known. The planner refuses all others, and so does the replica.
"""

from __future__ import annotations

from tidemark_protocol.casts import ARITHMETIC_OVERFLOW, cast_may_be_null
from tidemark_protocol.functions import call_errors, call_types
from tidemark_protocol.functions import nested as nested
from tidemark_protocol.functions.call_errors import Errors, always
from tidemark_protocol.functions.call_types import Signature, fixed, of_names
from tidemark_protocol.functions.codes import CODES
from tidemark_protocol.functions.dates import DATES
from tidemark_protocol.functions.entry import Function as Function
from tidemark_protocol.functions.entry import all_arguments, any_argument, maybe, not_null
from tidemark_protocol.functions.intervals import INTERVALS
from tidemark_protocol.functions.lambdas import LAMBDAS, VARIABLE
from tidemark_protocol.functions.math import MATH
from tidemark_protocol.functions.text import TEXT
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, is_nullable, walk
from tidemark_protocol.plan.lir import ErrorValue
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, INT, STRING, TIMESTAMP, SqlType

EXPRESSION_FAILED = "EXPRESSION_FAILED"


def _case_nullable(call: Call) -> bool:
    paired = len(call.arguments) // 2 * 2
    values = (*call.arguments[1:paired:2], *call.arguments[paired:])
    return paired == len(call.arguments) or any(is_nullable(v) for v in values)


def _if_nullable(call: Call) -> bool:
    return any(is_nullable(v) for v in call.arguments[1:])


def _cast_nullable(call: Call) -> bool:
    return any_argument(call) or cast_may_be_null(call.arguments[0].type, call.type)


def _tried(operator: str, errors: Errors) -> Signature:
    """A signature of arithmetic of numbers that could raise."""
    fits = call_types.arithmetic(operator)
    return lambda arguments, to: to.is_numeric and fits(arguments, to) and bool(errors(Call(operator, arguments, to)))


_TRIED = (
    ("add", "+", call_errors.overflow),
    ("subtract", "-", call_errors.overflow),
    ("multiply", "*", call_errors.overflow),
    ("divide", "/", call_errors.division),
    ("mod", "%", call_errors.remainder),
)
_TIMES = ("timestamp", "timestamp_ntz")
_ENTRIES = (
    *(Function(op, 2, 2, call_types.arithmetic(op), call_errors.overflow) for op in ("+", "-", "*")),
    Function("/", 2, 2, call_types.arithmetic("/"), call_errors.division),
    Function("div", 2, 2, call_types.whole_division, call_errors.whole_division),
    Function("%", 2, 2, call_types.arithmetic("%"), call_errors.remainder),
    Function("negate", 1, 1, call_types.negation, call_errors.negation),
    Function("abs", 1, 1, call_types.number, call_errors.overflow),
    Function("round", 2, 2, call_types.rounding, call_errors.rounding),
    *(Function(n, 2, 2, call_types.decimal_rounding, call_errors.rounding) for n in ("floor_to", "ceil_to")),
    Function("floor", 1, 1, call_types.floor_or_ceil, call_errors.floor_or_ceil),
    Function("ceil", 1, 1, call_types.floor_or_ceil, call_errors.floor_or_ceil),
    *(Function(op, 2, 2, call_types.whole_numbers) for op in ("&", "|", "^")),
    Function("~", 1, 1, call_types.whole_numbers),
    *(Function(n, 2, 2, call_types.bit_shift) for n in ("shiftleft", "shiftright", "shiftrightunsigned")),
    Function("greatest", 2, None, call_types.same_type, nullable=all_arguments),
    Function("least", 2, None, call_types.same_type, nullable=all_arguments),
    Function("isnan", 1, 1, of_names(BOOLEAN, "double", "float"), nullable=not_null),
    *(Function(op, 2, 2, call_types.comparison) for op in ("=", "<", "<=", ">", ">=")),
    Function("<=>", 2, 2, call_types.comparison, nullable=not_null),
    Function("and", 2, None, call_types.booleans, lazy=True),
    Function("or", 2, None, call_types.booleans, lazy=True),
    Function("not", 1, 1, call_types.booleans),
    Function("is_null", 1, 1, call_types.predicate_of_any, nullable=not_null),
    Function("is_not_null", 1, 1, call_types.predicate_of_any, nullable=not_null),
    Function("in", 2, None, call_types.comparison),
    Function("like", 2, 2, fixed(BOOLEAN, STRING, STRING), call_errors.like),
    Function("case", 2, None, call_types.case_when, nullable=_case_nullable, lazy=True),
    Function("if", 3, 3, call_types.if_then_else, nullable=_if_nullable, lazy=True),
    Function("coalesce", 1, None, call_types.same_type, nullable=all_arguments, lazy=True),
    Function("cast", 1, 1, call_types.cast, call_errors.cast, _cast_nullable),
    Function("try_cast", 1, 1, call_types.try_cast, nullable=maybe),
    *(Function(f"try_{n}", 2, 2, _tried(op, errors), nullable=maybe) for n, op, errors in _TRIED),
    Function("raise_error", 1, 1, call_types.raise_error, call_errors.raise_error, not_null),
    *(Function(n, 1, 1, of_names(INT, "date")) for n in ("year", "month", "day", "quarter", "dayofweek")),
    *(Function(n, 1, 1, of_names(INT, *_TIMES)) for n in ("hour", "minute", "second")),
    Function("date_add", 2, 2, fixed(DATE, DATE, INT)),
    Function("date_sub", 2, 2, fixed(DATE, DATE, INT)),
    Function("datediff", 2, 2, fixed(INT, DATE, DATE)),
    Function("add_months", 2, 2, fixed(DATE, DATE, INT), always(ARITHMETIC_OVERFLOW)),
    Function("trunc", 2, 2, call_types.truncated_date),
    Function("date_trunc", 2, 2, call_types.truncated_timestamp),
    *(Function(n, 1, 1, fixed(STRING, STRING)) for n in ("upper", "lower")),
    *(Function(n, 1, 2, call_types.strings) for n in ("trim", "ltrim", "rtrim")),
    Function("length", 1, 1, of_names(INT, "string", "binary")),
    Function("substring", 3, 3, fixed(STRING, STRING, INT, INT)),
    Function("concat", 1, None, lambda a, t: call_types.strings(a, t) or nested.same_arrays(a, t)),
    *(Function(n, 2, 2, fixed(BOOLEAN, STRING, STRING)) for n in ("startswith", "endswith", "contains")),
    Function("replace", 3, 3, fixed(STRING, STRING, STRING, STRING)),
    Function("array", 0, None, nested.array, nullable=not_null),
    Function("named_struct", 1, None, nested.named_struct, nullable=not_null),
    Function("field", 2, 2, nested.field, nullable=maybe),
    Function("subscript", 2, 2, nested.subscript, nested.subscript_errors, maybe),
    Function("get", 2, 2, nested.element_at, nullable=maybe),
    Function("element_at", 2, 2, nested.element_at, nested.element_errors, maybe),
    Function("try_element_at", 2, 2, nested.element_at, nested.try_element_errors, maybe),
    Function("size", 1, 1, nested.of_array(INT)),
    Function("array_contains", 2, 2, nested.search(BOOLEAN), nullable=maybe),
    Function("array_position", 2, 2, nested.search(BIGINT)),
    Function("array_remove", 2, 2, nested.removal),
    Function("array_insert", 3, 3, nested.insertion, nested.insertion_errors),
    Function("array_repeat", 2, 2, nested.repetition, nullable=not_null),
    Function("array_distinct", 1, 1, nested.same_arrays),
    *(Function(n, 2, 2, nested.same_arrays) for n in ("array_union", "array_intersect", "array_except")),
    Function("arrays_overlap", 2, 2, nested.overlap, nullable=maybe),
    *(Function(n, 1, 1, nested.of_elements, nullable=maybe) for n in ("array_min", "array_max")),
    Function("sort_array", 2, 2, nested.sorting),
    Function("reverse", 1, 1, nested.reversal),
    Function("flatten", 1, 1, nested.flattening, nullable=maybe),
    Function("slice", 3, 3, nested.slicing, always(nested.INVALID_PARAMETER)),
    Function("array_join", 2, 3, nested.joining),
    Function("split", 3, 3, nested.splitting, always(nested.INVALID_PARAMETER)),
    Function("split_part", 3, 3, fixed(STRING, STRING, STRING, INT), nested.try_element_errors, maybe),
    Function("from_json", 1, 1, nested.parsing, nullable=maybe),
    Function("get_json_object", 2, 2, fixed(STRING, STRING, STRING), nullable=maybe),
    Function("json_array_length", 1, 1, fixed(INT, STRING), nullable=maybe),
    Function("json_object_keys", 1, 1, fixed(nested.STRINGS, STRING), nullable=maybe),
    Function("to_json", 1, 1, nested.as_json),
)
FUNCTIONS: dict[str, Function] = {f.name: f for f in (*_ENTRIES, *MATH, *TEXT, *DATES, *CODES, *INTERVALS, *LAMBDAS)}
# The planner turns comparisons with these into temporal bounds: no plan contains one.
CLOCK: dict[str, Function] = {
    "now": Function("now", 0, 0, fixed(TIMESTAMP), nullable=not_null),
    "current_date": Function("current_date", 0, 0, fixed(DATE), nullable=not_null),
}


def call(function: str, arguments: tuple[ScalarExpr, ...], result: SqlType) -> Call:
    """A call whose nullability follows from its arguments. `function` must be on the list."""
    made = Call(function, arguments, result)
    return Call(function, arguments, result, entry(function).nullable(made))


def entry(function: str) -> Function:
    """The entry of a function, including those that read the clock; raises KeyError."""
    return CLOCK[function] if function in CLOCK else FUNCTIONS[function]


def errors_of(expr: ScalarExpr) -> frozenset[str]:
    """Every error condition that evaluating the expression on some row can raise."""
    calls = (node for node in walk(expr) if isinstance(node, Call))
    return frozenset(code for node in calls for code in entry(node.function).errors(node))


def is_fallible(expr: ScalarExpr) -> bool:
    """Whether the expression can raise on some row."""
    return bool(errors_of(expr))


def error_code(expr: ScalarExpr) -> str:
    """The code of a failure: the one condition that the expression can raise, else EXPRESSION_FAILED."""
    codes = errors_of(expr)
    return next(iter(codes)) if len(codes) == 1 else EXPRESSION_FAILED


def error_value(expr: ScalarExpr, text: str) -> ErrorValue:
    """The value of `__error` for a row on which `expr`, with the SQL text `text`, fails."""
    longest = 500
    return ErrorValue(error_code(expr), text if len(text) <= longest else text[: longest - 1] + "…")


def reads_clock(expr: ScalarExpr) -> bool:
    """Whether the expression depends on the time of its evaluation."""
    return any(isinstance(node, Call) and node.function in CLOCK for node in walk(expr))


def is_constant(expr: ScalarExpr) -> bool:
    """Whether the expression reads neither a column nor a variable."""
    variable = (isinstance(node, Call) and node.function == VARIABLE for node in walk(expr))
    return not any(isinstance(node, ColumnRef) for node in walk(expr)) and not any(variable)
