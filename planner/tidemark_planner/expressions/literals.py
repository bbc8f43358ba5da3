"""Catalyst's literals as literals of the protocol, in canonical form."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NoReturn

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.catalyst.spark_types import VOID, type_of
from tidemark_planner.errors import refuse, unsupported
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.literals import is_valid, nested_text
from tidemark_protocol.types import BOOLEAN, SqlType


def literal_of(node: CatalystNode) -> Literal:
    """The literal in canonical form. An untyped NULL is boolean until it is cast. Raises Refusal."""
    raw, spark_type = node.fields["value"], node.fields["dataType"]
    if spark_type == VOID:
        return Literal(None, BOOLEAN)
    of = type_of(spark_type)
    if raw is None:
        return Literal(None, of)
    if of.name == "binary":
        unsupported("a binary literal in this form", "write X'...'")
    literal = Literal(canonical(str(raw), of), of)
    if not is_valid(literal):
        _refuse_range(raw, of)
    return literal


def _refuse_range(value: Any, of: SqlType) -> NoReturn:
    refuse(
        "TYPE",
        f"the literal {value} is outside the supported range of {of} (years 1 to 9999 for dates and times)",
        word=str(value),
    )


def literal_from(value: Any, of: SqlType) -> Literal:
    """The literal of a value: a text, or lists of texts where the type is nested. Raises Refusal."""
    if value is None:
        return Literal(None, of)
    literal = Literal(nested_text(_canonical_parts(value, of)) if of.is_nested else canonical(value, of), of)
    if not is_valid(literal):
        _refuse_range(value, of)
    return literal


def _canonical_parts(value: Any, of: SqlType) -> Any:
    if value is None:
        return None
    if not of.is_nested:
        return canonical(value, of)
    types = of.children * len(value) if of.is_array else of.children
    return [_canonical_parts(part, t) for part, t in zip(value, types, strict=True)]


def canonical(text: str, of: SqlType) -> str:
    """Spark's text of a value in the protocol's canonical form (Literal)."""
    if of.name == "binary":
        return text.lower()
    if of.is_floating:
        return text if text in ("NaN", "Infinity", "-Infinity") else repr(float(text))
    if of.name == "timestamp":
        return text.replace(" ", "T")
    if of.name == "timestamp_ntz":
        return _from_micros(int(text)) if text.lstrip("-").isdigit() else text.replace(" ", "T")
    return text


def _from_micros(micros: int) -> str:
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=micros)).isoformat()
    except OverflowError:
        return str(micros)
