"""Spark's exceptions as diagnostics: our code, the position and Spark's message.

The line and column are Spark's (counted from 1 here); the first paragraph of its message is kept, the dump of the
plan is not.
"""

from __future__ import annotations

import re
from typing import Any

from tidemark_protocol.messages.planning import Diagnostic

# The first prefix that matches the condition of the error gives the code.
_CODES = (
    ("PARSE", "SYNTAX"),
    ("INVALID_IDENTIFIER", "SYNTAX"),
    ("UNRESOLVED_COLUMN", "UNRESOLVED_COLUMN"),
    ("UNRESOLVED_FIELD", "UNRESOLVED_COLUMN"),
    ("UNRESOLVED_USING_COLUMN", "UNRESOLVED_COLUMN"),
    ("FIELD_NOT_FOUND", "UNRESOLVED_COLUMN"),
    ("MISSING_AGGREGATION", "UNRESOLVED_COLUMN"),
    ("TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_RELATION"),
    ("UNRESOLVED_ROUTINE", "FORBIDDEN_FUNCTION"),
    ("AMBIGUOUS", "AMBIGUOUS"),
    ("COLUMN_ALREADY_EXISTS", "DUPLICATE_NAME"),
    ("DUPLICATE", "DUPLICATE_NAME"),
    ("UNSUPPORTED", "UNSUPPORTED"),
)
_INTERNAL = "[INTERNAL_ERROR] "
_UNRESOLVED = "Found the unresolved operator: "
# Spark's name of the number of a grouping set. All queries share the attribute, and its position is the first one's.
_GROUPING_ID = "spark_grouping_id"
_MISPLACED_GROUPING = (
    "grouping() and grouping_id() are read in the SELECT list, HAVING or ORDER BY of the query whose GROUP BY has the "
    "grouping sets: give it a name there, and filter by the name"
)
_EXPRESSION_ID = re.compile(r"#\d+L?")
_CONTEXT = re.compile(r"== SQL \(line (\d+), position (\d+)\) ==")
_FIRST_PARAGRAPH = re.compile(r"\s*(?:\[[A-Z0-9_.]+\]\s*)?(.*?)(?:\s*SQLSTATE:|;\s*line \d|\n|$)", re.DOTALL)


def diagnose(error: Any) -> Diagnostic:
    """The diagnostic of a PySparkException that was raised while parsing or analysing."""
    condition = error.getCondition() or ""
    code = next((ours for prefix, ours in _CODES if condition.startswith(prefix)), _by_kind(error, condition))
    line, column = _position(error)
    parameters = error.getMessageParameters() or {}
    if _word(parameters) == _GROUPING_ID:
        return Diagnostic("UNRESOLVED_COLUMN", _MISPLACED_GROUPING, word="grouping")
    return Diagnostic(code, _message(error, condition, parameters), line=line, column=column, word=_word(parameters))


def diagnose_internal(thrown: str) -> Diagnostic | None:
    """The diagnostic of a JVM exception in which Spark's analyser reports a failure of its own; None for others."""
    if _INTERNAL not in thrown:
        return None
    message = _EXPRESSION_ID.sub("", " ".join(thrown.partition(_INTERNAL)[2].partition(" SQLSTATE:")[0].split()))
    line, column = (int(number) for number in place.groups()) if (place := _CONTEXT.search(thrown)) else (0, 0)
    if message.startswith(_UNRESOLVED):
        reason = "does not resolve this part of the statement, and does not say why: "
        text = reason + message.removeprefix(_UNRESOLVED)
    else:
        text = f"fails at this statement ({message.rstrip('.')}): write it in another way"
    return Diagnostic("UNSUPPORTED", f"Spark's analyser {text}", line=line, column=column)


def _by_kind(error: Any, condition: str) -> str:
    if type(error).__name__ == "ParseException":
        return "SYNTAX"
    return "TYPE" if condition else "INTERNAL"


def _message(error: Any, condition: str, parameters: dict[str, str]) -> str:
    found = _FIRST_PARAGRAPH.match(str(error))
    text = " ".join((found[1] if found else str(error)).split())
    if condition == "INVALID_IDENTIFIER":
        return f"{text} (a name with a dash needs back quotes: `{parameters.get('ident', '')}`)"
    return text or condition


def _position(error: Any) -> tuple[int, int]:
    origin: Any = getattr(error, "_origin", None)
    try:
        line, start = origin.line(), origin.startPosition()
        return (int(line.get()), int(start.get()) + 1) if line.isDefined() and start.isDefined() else (0, 0)
    except Exception:  # some exceptions of the JVM have no position
        return (0, 0)


def _word(parameters: dict[str, str]) -> str:
    for name in ("error", "ident", "objectName", "routineName", "name", "relationName", "expression", "sqlExpr"):
        if name in parameters:
            return parameters[name].strip("'\"`")
    return ""
