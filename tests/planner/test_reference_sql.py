"""The SQL reference: every example is planned, or refused with the words that the page gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.planner.catalogue import CATALOGUE, one_view
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.messages.planning import PlanQueryRequest, Refused

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"
EXAMPLES = re.findall(r"```sql( query)?(?: refused: ([^\n]*))?\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_page_has_examples_of_each_kind() -> None:
    """The pattern finds planned, refused and query examples."""
    assert len(EXAMPLES) >= 15
    assert {(bool(query), bool(why)) for query, why, _ in EXAMPLES} == {(q, r) for q in (0, 1) for r in (0, 1)}


@pytest.mark.parametrize(("query", "why", "sql"), EXAMPLES, ids=[" ".join(e[2].split())[:50] for e in EXAMPLES])
def test_an_example_gives_the_result_of_the_page(catalyst: Catalyst, query: str, why: str, sql: str) -> None:
    """An example is planned, or refused with the words that it states."""
    if query:
        outcome: object = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q1/"))
    else:
        outcome = plan(catalyst, one_view(sql))
    messages = [d.message for d in outcome.diagnostics] if isinstance(outcome, Refused) else []

    assert [why in message for message in messages] == ([True] if why else [])
