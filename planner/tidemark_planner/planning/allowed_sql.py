"""The allow-lists of SQL: checks of the parse tree, before anything is evaluated.

Spark's analysis evaluates some text (inline tables, special dates), so functions are checked by name before it. The
typed tree of an allowed function is checked again (tidemark_protocol.check.plan).
"""

from __future__ import annotations

import re

from tidemark_planner.errors import refuse
from tidemark_planner.expressions.call_classes import NAMES as CLASS_NAMES
from tidemark_planner.expressions.lambdas import NAMES as LAMBDAS
from tidemark_planner.expressions.nested import NAMES as NESTED
from tidemark_planner.expressions.nested import TABLE_FUNCTIONS
from tidemark_planner.sql.syntax import ParseTree, Phrase
from tidemark_planner.sql.table_changes import FUNCTION as CHANGES
from tidemark_planner.sql.try_functions import NAMES as TRIES
from tidemark_protocol.functions.nested import MAX_ELEMENTS
from tidemark_protocol.functions.text import MAX_CHARACTERS, MAX_REPEATS
from tidemark_protocol.plan.literals import is_special_time

AGGREGATES = frozenset(
    "count sum avg mean count_if bool_and bool_or every some any min max any_value first last first_value last_value "
    "stddev stddev_samp std stddev_pop variance var_samp var_pop string_agg listagg percentile percentile_cont "
    "percentile_disc median mode max_by min_by array_agg collect_list collect_set corr covar_pop covar_samp "
    "bit_and bit_or bit_xor skewness kurtosis regr_count regr_avgx regr_avgy regr_sxx regr_sxy regr_syy regr_slope "
    "regr_intercept regr_r2 try_sum try_avg approx_count_distinct approx_percentile percentile_approx".split()
)
_WINDOWS = frozenset("row_number rank dense_rank percent_rank cume_dist ntile lag lead nth_value".split())
# Aggregates whose results depend on the order of rows, and exact expressions to use instead.
_INEXACT = {
    "histogram_numeric": "count(*) with GROUP BY width_bucket(...)",
    "count_min_sketch": "count(*) with GROUP BY",
    "approx_top_k": "count(*) with GROUP BY, ORDER BY and LIMIT",
}
_CLOCK = frozenset("localtimestamp current_time mz_now".split())
SCALARS = (
    frozenset(
        "abs coalesce nvl ifnull nullif nvl2 if isnull isnotnull isnan equal_null greatest least mod negative positive "
        "round floor ceil ceiling shiftleft shiftright shiftrightunsigned grouping grouping_id "
        "upper ucase lower lcase length char_length character_length len substring substr "
        "concat trim ltrim rtrim startswith endswith contains replace "
        "year month day dayofmonth quarter hour minute second dayofweek date_part datepart "
        "now current_timestamp current_date curdate "
        "date_add dateadd date_sub datediff date_diff add_months date_trunc trunc "
        "boolean tinyint smallint int bigint float double decimal string date timestamp binary".split()
    )
    | CLASS_NAMES
    | TRIES
)
# Rules of the grammar without a lowering: the construct in SQL words, and what to write instead.
_CLAUSES = {
    "pivotClause": ("PIVOT", "write an aggregate with FILTER (WHERE ...) per column"),
    "sample": ("TABLESAMPLE", "a sample of changing rows is not definite; filter by a hash of the key"),
    "jsonTable": ("JSON_TABLE", "use from_json and explode"),
    "asofJoinType": ("ASOF JOIN", "join by a range, and keep the first row with row_number()"),
    "nearestByClause": ("NEAREST BY", "join by a range, and keep the first row with row_number()"),
    "changesClause": ("CHANGES", "a continualTask reads changes with table_changes()"),
    "streamRelationPrimary": ("STREAM", "leave the word out: every view is kept up to date"),
    "watermarkClause": ("WATERMARK", "compare a column with now() in a filter"),
    "binByClause": ("BIN BY", "group by width_bucket()"),
    "parameterMarker": ("a parameter marker", "write the value"),
    "temporalClause": ("time travel (VERSION or TIMESTAMP AS OF)", "a query reads at one time: use --as-of"),
    "transformClause": ("TRANSFORM", "scripts never run; use SQL functions"),
    "hint": ("a hint", "leave it out: the planner chooses the joins"),
    "optionsClause": ("WITH (options)", "options of a relation belong into its DataSource"),
}
# A word that must stand in the text where the clause does: most clauses are ruled out by it at little cost.
_CLAUSE_WORDS = {
    "pivotClause": "PIVOT",
    "sample": "TABLESAMPLE",
    "jsonTable": "JSON_TABLE",
    "asofJoinType": "ASOF",
    "nearestByClause": "NEAREST",
    "changesClause": "CHANGES",
    "streamRelationPrimary": "STREAM",
    "watermarkClause": "WATERMARK",
    "binByClause": "BIN",
    "temporalClause": "OF",
    "hint": "/*+",
    "optionsClause": "WITH",
}
_KEYWORDS = {
    "RECURSIVE": ("WITH RECURSIVE inside a query", "move it to the beginning of the query, or into a view of its own"),
    "COLLATE": ("COLLATE", "compare lower(...) of both sides"),
}
# Functions that make large values, and the largest value of the argument that sets the size.
_MAX = {
    "lpad": MAX_CHARACTERS,
    "rpad": MAX_CHARACTERS,
    "repeat": MAX_REPEATS,
    "array_repeat": MAX_ELEMENTS,
    "space": MAX_CHARACTERS,
}
_GROWING = re.compile(rf"\b({'|'.join(_MAX)})`?\(", re.IGNORECASE)
_DIGITS = re.compile(r"[-+]*[0-9._]+[a-z]?", re.IGNORECASE)
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_MAPS = frozenset(
    "map map_from_arrays map_from_entries map_concat map_keys map_values map_entries map_contains_key map_filter "
    "map_zip_with transform_keys transform_values str_to_map".split()
)
_NO_MAPS = "maps are not supported, write an array of structs, as in array(named_struct('key', k, 'value', v))"
_FORMATS = frozenset({"format_string", "printf"})
# One string literal, or several in a row, which SQL concatenates.
_TEXT = re.compile(r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)
_WIDE = re.compile(r"%[^a-zA-Z%]*[0-9]{4}")
# The start value of aggregate(): a column or a number with its alias, a cast of one to a type of fixed width, or a
# struct of these. The text has no spaces. The pattern is unambiguous, so matching takes linear time.
_VALUE = r"(?:[a-z_]|-?[0-9.])[\w.]*"
_FIXED_TYPE = (
    r"(?:boolean|tinyint|byte|smallint|short|int|integer|bigint|long|float|real|double|date|timestamp(?:_[ln]tz)?"
    r"|(?:decimal|dec|numeric)(?:\([0-9,]+\))?)"
)
_CAST = rf"cast\({_VALUE}as{_FIXED_TYPE}\)"
_FIELD = rf"(?:'\w+',)?(?:{_VALUE}|{_CAST}\w*)"
_START = re.compile(rf"{_VALUE}|{_CAST}|(?:named_)?struct\({_FIELD}(?:,{_FIELD})*\)", re.IGNORECASE)
# Words that are a column where one has this name. Without one, Spark's analysis makes an expression of them, which the
# lowering refuses by the key of its row.
_CURRENT = {
    "current_time()": ("CURRENT_TIME", "LOCALTIME"),
    "current_user()": ("CURRENT_USER", "SESSION_USER", "USER"),
}


def check_statement(sql: str, tree: ParseTree) -> None:
    """Refuse a statement that is not a query, and every construct without a lowering, by name and position."""
    statement = next(iter(tree.phrases("statement")), None)
    if statement is None or statement.kind != "StatementDefaultContext" or not tree.is_statement:
        start = statement.span.start if statement and tree.is_statement else 0
        word = next(iter(sql[start:].split()), "").upper()
        at = (statement.span.line, statement.span.column) if start and statement else (1, 1)
        refuse("UNSUPPORTED", f"{word} is not a query: write a SELECT", *at, word)
    upper = sql.upper()
    for rule, (construct, hint) in _CLAUSES.items():
        if _CLAUSE_WORDS.get(rule, "") in upper:
            for phrase in tree.phrases(rule):
                _refuse_at(phrase, construct, hint)
    for keyword, (construct, hint) in _KEYWORDS.items():
        if keyword in upper:
            for token in tree.tokens(keyword):
                if not token.is_name:
                    _refuse_at(token, construct, hint)
    _check_functions(tree)
    _check_sizes(tree)
    _check_folds(tree)
    _check_literals(tree)


def _check_functions(tree: ParseTree) -> None:
    for phrase in tree.phrases("functionName"):
        name = phrase.name
        if (
            name in SCALARS
            or name in AGGREGATES
            or name in _WINDOWS
            or name in NESTED
            or name in LAMBDAS
            or name in TABLE_FUNCTIONS
        ):
            continue
        if name == CHANGES and phrase.parent == "TableFunctionCallContext":
            continue
        if name in _INEXACT:
            _refuse_at(phrase, f"the approximate {name}", f"write {_INEXACT[name]}, which is exact")
        if name in _CLOCK:
            _refuse_at(phrase, name, "write now() or current_date(), in a filter")
        hint = f": {_NO_MAPS}" if name in _MAPS else ""
        message = f"function {name} is not on the list of allowed functions (docs/reference/sql.md){hint}"
        refuse("FORBIDDEN_FUNCTION", message, phrase.span.line, phrase.span.column, name)


def current_word(tree: ParseTree, refused: str) -> Phrase | None:
    """The only word of the text that can be the `refused` expression (`current_user()`); None: there are none
    or several.
    """
    found = [t for word in _CURRENT.get(refused, ()) for t in tree.tokens(word) if t.parent == "CurrentLikeContext"]
    return found[0] if len(found) == 1 else None


def _check_sizes(tree: ParseTree) -> None:
    """Functions that make large values must have literal sizes, since analysis evaluates inline tables. Outside these
    repeat may have any count, which is checked for each row.
    """
    for phrase, _, arguments in tree.calls(_MAX):
        name = phrase.name
        at = 0 if name == "space" else 1
        size = arguments[at].text if len(arguments) > at else ""
        small = _NUMBER.fullmatch(size) is not None and int(size) <= _MAX[name]
        if name == "repeat" and not _DIGITS.fullmatch(size) and not tree.is_in_table(phrase.span):
            small = True
        if not small or any(_GROWING.search(a.text) for a in arguments):
            hint = (
                f"write a literal number of at most {_MAX[name]}, and do not "
                "apply it to a value that lpad, rpad, repeat, array_repeat or space has made"
            )
            _refuse_at(phrase, f"{name} with this size", hint, name)

    for phrase, _, arguments in tree.calls(_FORMATS):
        form = arguments[0].text if arguments else ""
        if not _TEXT.fullmatch(form) or _WIDE.search(_format_text(form, tree)):
            hint = "write a literal format with widths of at most three digits"
            _refuse_at(phrase, f"{phrase.name} with this format", hint, phrase.name)


def _format_text(form: str, tree: ParseTree) -> str:
    """The text of a literal format, without escapes and quotes: `'%\\071' '9d'` is `%99d`."""
    return tree.unescaped(form).replace("'", "").replace('"', "")


def _check_folds(tree: ParseTree) -> None:
    """The accumulator of `aggregate` must have a fixed width, since analysis evaluates some calls."""
    for phrase, _, arguments in tree.calls(("aggregate", "reduce")):
        start = arguments[1].text if len(arguments) > 1 else ""
        if not _START.fullmatch(start):
            hint = "start with a column, a number, or a struct or cast of these"
            _refuse_at(phrase, f"{phrase.name} with this start value", hint, phrase.name)


def _check_literals(tree: ParseTree) -> None:
    for literal in tree.typed_literals():
        at = literal.word
        if at.text.lower().startswith(("date", "timestamp")) and is_special_time(literal.value):
            word = f"{at.text} {literal.text}"
            message = f"{word} depends on the time of planning: write the date or time itself, or filter by now()"
            refuse("UNSUPPORTED", message, at.span.line, at.span.column, word)


def _refuse_at(phrase: Phrase, construct: str, hint: str = "", word: str = "") -> None:
    message = f"{construct} is not supported" + (f": {hint}" if hint else "")
    refuse("UNSUPPORTED", message, phrase.span.line, phrase.span.column, word or construct)
