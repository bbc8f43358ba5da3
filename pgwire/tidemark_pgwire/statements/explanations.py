"""EXPLAIN of a query, or of a CREATE or ALTER that defines a view or an index: nothing is created.

EXPLAIN [VERBOSE] QUERY
EXPLAIN [VERBOSE] CREATE [OR REPLACE] [MATERIALIZED] VIEW ... | CREATE INDEX ... | ALTER [MATERIALIZED] VIEW ...
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, WireError
from tidemark_pgwire.statements import definitions
from tidemark_pgwire.statements.words import Words


@dataclass(frozen=True)
class Explain:
    """`at`: where the text of the query begins in the client's; None: the query is not the client's. `define`: what
    would define an object by it."""

    sql: str
    at: int | None = 0
    define: definitions.Define | None = None


def explain(words: Words) -> Explain:
    """The command after the word EXPLAIN. Raises WireError."""
    if words.peek().text == "(":
        options, _ = words.in_parentheses()
        if "ANALYZE" in options.upper():
            raise WireError(FEATURE_NOT_SUPPORTED, "EXPLAIN ANALYZE is not supported: EXPLAIN prints the plan")
    if words.take("ANALYZE"):
        raise WireError(FEATURE_NOT_SUPPORTED, "EXPLAIN ANALYZE is not supported: EXPLAIN prints the plan")
    words.take("VERBOSE")
    if words.peek().word == "EXECUTE":
        hint = "EXPLAIN the statement itself, with the values in place of its parameters."
        raise WireError(FEATURE_NOT_SUPPORTED, "EXPLAIN EXECUTE is not supported", hint=hint)
    if (what := words.peek().word) not in ("CREATE", "ALTER", "DROP"):
        return Explain(*words.take_remaining_text())
    defined = definitions.parse(words)
    if not isinstance(defined, definitions.Define) or defined.kind == definitions.TABLE:
        raise WireError(FEATURE_NOT_SUPPORTED, f"EXPLAIN {what} is of a view or an index alone: others have no plan")
    return Explain(defined.sql, defined.at, defined)
