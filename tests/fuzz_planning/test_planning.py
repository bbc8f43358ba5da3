"""Mutated SQL is planned, or refused with a reason and a position: nothing else comes out of the planner.

`make fuzz-planning` plans more of it. A defect that it finds becomes a case of tests/planner/refused or tests/oracle.
"""

from __future__ import annotations

import pytest

from tests.fuzz_planning.campaign import Campaign, Request, fault
from tests.fuzz_planning.corpus import corpus
from tests.fuzz_planning.statements import statement
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.messages.planning import Diagnostic, PlanRequest

STATEMENTS, AT_ONCE = 1_000, 100
"""One costs 30 to 50 ms of CPU."""


@pytest.fixture(scope="module")
def catalyst(spark: object) -> Catalyst:
    return Catalyst.start()


@pytest.mark.broad
@pytest.mark.spark
@pytest.mark.parametrize("first", range(0, STATEMENTS, AT_ONCE))
def test_mutated_statements_are_planned_or_refused_with_a_position(catalyst: Catalyst, first: int) -> None:
    """In this process: an exception that the worker would answer with INTERNAL ends up here as a defect."""

    def planner(request: Request) -> object:
        return plan(catalyst, request) if isinstance(request, PlanRequest) else plan_query(catalyst, request)

    campaign = Campaign(0, corpus(), planner)
    assert [str(defect) for defect in campaign.run(range(first, first + AT_ONCE))] == []
    planned = sum(campaign.outcomes[kind] for kind in ("Planned", "PlannedOneShot", "PlannedPeek"))
    assert planned > AT_ONCE / 10, f"too few are valid to find anything: {campaign.outcomes}"


def test_a_statement_depends_on_its_seed_and_number_alone() -> None:
    """A campaign can go on where it was stopped, and a defect be repeated."""
    texts = corpus().statements
    assert [statement(7, n, texts) for n in range(50)] == [statement(7, n, texts) for n in range(50)]
    assert len({statement(7, n, texts) for n in range(50)}) > 40


def test_a_defect_is_an_internal_error_or_a_refusal_without_a_position() -> None:
    assert fault(Diagnostic("TYPE", "wrong", line=2, column=1), "SELECT\na") is None
    assert "no position" in str(fault(Diagnostic("TYPE", "wrong"), "SELECT a"))
    assert "no position" in str(fault(Diagnostic("TYPE", "wrong", line=3, column=1), "SELECT\na"))
    assert "no reason" in str(fault(Diagnostic("INTERNAL", "a bug", line=1, column=1), "SELECT a"))
    assert "no reason" in str(fault(Diagnostic("TYPE", "", line=1, column=1), "SELECT a"))
