"""Statements are planned once, for as long as the names in them mean the same; lookups never."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tests.gateway.registries import add_dataflow, registry
from tests.protocol.samples import A
from tidemark_operator.gateway.admission.fair_queue import FairQueue
from tidemark_operator.gateway.admission.limits import planner_queue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.query import statement_cache
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.client import PlannerClient
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Diagnostic, Finishing, PlannedPeek, PlanQueryRequest, Refused
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import ColumnType

PEEK = PlannedPeek(GlobalId("s.a"), MapFilterProject((ColumnType(A.type),)), Finishing(), (A,))
REFUSED = Refused((Diagnostic("SYNTAX", "what?"),))
TIMEOUT = Refused((Diagnostic("TIMEOUT", "planning took longer than 5 s: simplify the SQL"),))


class Planner:
    """Answers, and counts."""

    def __init__(self) -> None:
        self.asked: list[PlanQueryRequest] = []

    async def plan_query(self, request: PlanQueryRequest) -> PlannedPeek | Refused:
        self.asked.append(request)
        await asyncio.sleep(0)  # others come to their turn
        return REFUSED if "what" in request.sql else TIMEOUT if "slow" in request.sql else PEEK


def ask(asked: StatementCache, *sql: str, place: str | None = "default") -> list[object]:
    return [asyncio.run(asked.planned("anne", "ns", text, place)) for text in sql]


def test_a_statement_is_planned_once_until_what_it_may_name_changes() -> None:
    """A new Dataflow of the namespace may hide, or make ambiguous, what was meant."""
    known, planner = registry(), Planner()
    made = StatementCache(known, cast(PlannerClient, planner), PlannerAdmission(planner_queue()))

    assert ask(made, "SELECT 1", "SELECT 2", "SELECT 1", "SELECT 2") == [PEEK] * 4
    assert len(planner.asked) == 2
    add_dataflow(known, "d", shards=("s.a",))
    ask(made, "SELECT 1")
    assert len(planner.asked) == 3


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM Delays, s.b", {"delays"}),
        ("TABLE `tidemark_introspection`.frontiers", {"tidemark_introspection"}),
        ("TABLE `delays-2`", {"delays", "delays-2"}),
    ],
)
def test_the_planner_is_told_of_what_the_text_can_mean_alone(sql: str, names: set[str]) -> None:
    """In a namespace of a thousand Dataflows all of them would take longer to tell than most queries take. A name that
    is a part of a word is told too, as `s` mostly is."""
    known, planner = registry(), Planner()
    for name in ("delays", "delays-2", "other"):
        add_dataflow(known, name, shards=("s.a",))
    ask(StatementCache(known, cast(PlannerClient, planner), PlannerAdmission(planner_queue())), sql)

    assert {r.parent for r in planner.asked[0].catalogue.relations} - {"s"} == names


def test_whose_a_relation_is_follows_what_there_is() -> None:
    """Rights are by owner: one that is new is known at once, one that is gone is nobody's."""
    known = registry()
    made = StatementCache(known, cast(PlannerClient, Planner()), PlannerAdmission(planner_queue()))
    index = add_dataflow(known, "d", shards=("s.a",))
    assert {str(made.owners("ns", None)[id]) for id in (GlobalId("s.b"), index)} == {"DataSource s", "Dataflow d"}

    known.forget(Key(DATAFLOWS, "ns", "d"))
    assert index not in made.owners("ns", None)


def test_each_instance_has_meanings_of_its_own() -> None:
    """A plan may import the indexes of its own instance alone."""
    planner = Planner()
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    ask(made, "SELECT 1")
    ask(made, "SELECT 1", place="other")
    assert len(planner.asked) == 2


def test_a_refusal_is_not_remembered() -> None:
    """What it was refused for may be mended in a way that no name shows."""
    planner = Planner()
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    assert ask(made, "what", "what") == [REFUSED, REFUSED]
    assert len(planner.asked) == 2


def test_a_lookup_needs_no_planner() -> None:
    """The index of a Dataflow with one export, by the Dataflow's name."""
    known, planner = registry(), Planner()
    id = add_dataflow(known, "d", shards=("s.a",))
    made = StatementCache(known, cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    (found,) = ask(made, "SELECT * FROM d WHERE a = 7")

    assert isinstance(found, PlannedPeek)
    assert found.relation == id
    assert planner.asked == []


def test_lookups_push_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many keys are asked for."""
    monkeypatch.setattr(statement_cache, "MAX_STATEMENTS", 2)
    known, planner = registry(), Planner()
    add_dataflow(known, "d", shards=("s.a",))
    made = StatementCache(known, cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    ask(made, "SELECT 1", *(f"SELECT * FROM d WHERE a = {key}" for key in range(5)), "SELECT 1")
    assert len(planner.asked) == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement that was asked longest ago is forgotten; very long ones are not remembered at all."""
    monkeypatch.setattr(statement_cache, "MAX_STATEMENTS", 2)
    planner = Planner()
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    ask(made, "SELECT 1", "SELECT 2", "SELECT 1", "SELECT 3", "SELECT 1", "SELECT 2")
    assert [r.sql for r in planner.asked] == ["SELECT 1", "SELECT 2", "SELECT 3", "SELECT 2"]
    long = "SELECT " + "1" * statement_cache.MAX_CHARACTERS
    ask(made, long, long)
    assert len(planner.asked) == 6


def test_a_statement_that_the_planner_fails_at_is_tried_ever_more_rarely() -> None:
    """Each try may cost a planner process, and others wait meanwhile. However long it is, and whatever changes."""
    now, known, planner = [0.0], registry(), Planner()
    made = StatementCache(known, cast(PlannerClient, planner), PlannerAdmission(planner_queue(), lambda: now[0]))
    slow = "SELECT slow " + "1" * statement_cache.MAX_CHARACTERS
    tries = []
    for now[0] in range(60):
        assert ask(made, slow, "SELECT 1") == [TIMEOUT, PEEK]
        tries.append(sum("slow" in request.sql for request in planner.asked))

    assert [tries.index(number) for number in (1, 2, 3, 4)] == [0, 5, 15, 35]
    add_dataflow(known, "d", shards=("s.a",))
    assert ask(made, slow, place="other") == [TIMEOUT]
    assert sum("slow" in request.sql for request in planner.asked) == tries[-1]


def test_who_asks_meanwhile_what_the_planner_then_fails_at_costs_no_other_process() -> None:
    """The same statement of two callers, at once: one of them waits for its turn."""
    planner = Planner()
    queue = FairQueue("statements", 1, "wait", waiting=8)
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(queue, lambda: 0.0))

    async def both() -> list[object]:
        return await asyncio.gather(*(made.planned(who, "ns", "SELECT slow", "default") for who in ("anne", "bob")))

    assert asyncio.run(both()) == [TIMEOUT, TIMEOUT]
    assert len(planner.asked) == 1
