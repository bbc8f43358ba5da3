"""Texts are literal: Spark substitutes nothing in them, though it knows the environment of the process."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_protocol.functions.sql_text import string_sql
from tidemark_replica.spark.settings import SETTINGS

pytestmark = pytest.mark.spark

TEXTS = [
    "${env:PATH}",
    "${system:user.name}",
    "${spark.app.name}",
    "${nosuch}",
    "$${env:PATH}",
    "$",
    "${",
    "\\${env:PATH}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_variable_in_a_literal_is_text(spark: Any, text: str) -> None:
    """The replica's session has it so; a new session would not: `SET` is on in a session that is new."""
    escaped = spark.newSession()
    escaped.conf.set("spark.sql.variable.substitute", "true")

    assert spark.conf.get("spark.sql.variable.substitute") == SETTINGS["spark.sql.variable.substitute"] == "false"
    assert spark.range(1).selectExpr(f"'{text}' AS v".replace("\\", "\\\\")).first().v == text
    for session in (spark, escaped):
        assert session.range(1).selectExpr(f"{string_sql(text)} AS v").first().v == text
        assert session.range(1).where(f"{string_sql(text)} = concat('', {string_sql(text)})").count() == 1
