"""Statements are planned once, for as long as the names in them mean the same; plain SELECTs never."""

from __future__ import annotations

import asyncio
import re
from typing import cast

import pytest

from tests.gateway.registries import add_dataflow, registry
from tests.protocol.samples import A
from tidemark_operator.gateway.admission.fair_queue import FairQueue
from tidemark_operator.gateway.admission.limits import planner_queue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.query import statement_cache
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.gateway.query.statement_shape import MAX_CHARACTERS
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.client import PlannerClient
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Diagnostic, Finishing, PlannedPeek, PlanQueryRequest, Refused
from tidemark_protocol.plan.expr import ColumnRef, Literal
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import BOOLEAN, STRING, ColumnType

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


class TemplatePlanner(Planner):
    """Plans each statement as a filter by its literals; one with the literal `depends_on` differs in a column, too."""

    def __init__(self, depends_on: str = "") -> None:
        super().__init__()
        self._depends_on = depends_on

    async def plan_query(self, request: PlanQueryRequest) -> PlannedPeek | Refused:
        self.asked.append(request)
        await asyncio.sleep(0)  # others come to their turn
        return self.plan_of(request.sql)

    def plan_of(self, sql: str) -> PlannedPeek:
        numbers, texts = re.findall(r"[=>] (\d+)", sql), re.findall(r"'(\w+)'", sql)
        literals = [*(Literal(n, A.type) for n in numbers), *(Literal(t, STRING) for t in texts)]
        predicates = tuple(call("=", (ColumnRef(0, each.type), each), BOOLEAN) for each in literals)
        mfp = MapFilterProject((ColumnType(A.type),), predicates=predicates)
        return PlannedPeek(GlobalId("s.a"), mfp, Finishing(), (A, A) if self._depends_on in numbers else (A,))


def ask(asked: StatementCache, *sql: str, place: str | None = "default") -> list[object]:
    return [asyncio.run(asked.planned("anne", "ns", text, place)) for text in sql]


def test_a_statement_is_planned_once_until_its_catalogue_changes() -> None:
    """A new Dataflow may hide, or make ambiguous, what was meant; one that the statement does not name may not."""
    known, planner = registry(), Planner()
    made = StatementCache(known, cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    one, other = "SELECT a + 1 FROM delays", "SELECT a + 1 FROM flights"

    assert ask(made, one, other, one, other) == [PEEK] * 4
    assert len(planner.asked) == 2
    add_dataflow(known, "delays", shards=("s.a",))
    ask(made, one, other, one, other)
    assert [request.sql for request in planner.asked] == [one, other, one]


def test_a_new_revision_of_a_relation_never_gets_an_old_plan() -> None:
    """Its id and its columns may differ: also the plans of other literals are gone."""
    known, planner = registry(), TemplatePlanner()
    made = StatementCache(known, cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    add_dataflow(known, "delays", shards=("s.a",))
    statements = [f"SELECT a + 1 FROM delays WHERE a = {value}" for value in range(2, 6)]
    ask(made, *statements)
    assert len(planner.asked) == 2
    add_dataflow(known, "delays", shards=("s.b",))
    assert ask(made, *statements) == [planner.plan_of(sql) for sql in statements]
    assert len(planner.asked) == 4


def test_statements_that_differ_in_literals_are_planned_twice() -> None:
    """From the third on their plan is the first one's, with the literals of the statement."""
    planner = TemplatePlanner()
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    statements = [f"SELECT a + 1 FROM s.a WHERE a = {value} AND b > 'b{value}'" for value in range(2, 22)]

    assert ask(made, *statements) == [planner.plan_of(sql) for sql in statements]
    assert len(planner.asked) == 2
    ask(made, "SELECT a + 1 FROM s.a WHERE a = 3000000000 AND b > 'x'")
    assert len(planner.asked) == 3


def test_statements_that_waited_for_the_planner_use_a_plan_that_was_kept_meanwhile() -> None:
    """Twenty clients of one user ask at once: one statement is at the planner at a time, and two are planned."""
    planner = TemplatePlanner()
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    statements = [f"SELECT a + 1 FROM s.a WHERE a = {value}" for value in range(2, 22)]

    async def at_once() -> list[object]:
        return list(await asyncio.gather(*(made.planned("anne", "ns", sql, "default") for sql in statements)))

    assert asyncio.run(at_once()) == [planner.plan_of(sql) for sql in statements]
    assert len(planner.asked) == 2


def test_statements_with_a_plan_that_depends_on_a_literal_are_all_planned() -> None:
    """The second literal gives another number of columns, so nothing is known of a third, also where it looks alike."""
    planner = TemplatePlanner(depends_on="7")
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    statements = [f"SELECT a + 1 FROM s.a WHERE a = {value}" for value in (5, 7, 2, 3, 7, 5)]

    assert ask(made, *statements) == [planner.plan_of(sql) for sql in statements]
    assert [request.sql for request in planner.asked] == statements[:4]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM Delays, s.b", {"delays"}),
        ("TABLE `tidemark_introspection`.frontiers", {"tidemark_introspection"}),
        ("TABLE `delays-2`", {"delays", "delays-2"}),
    ],
)
def test_the_planner_gets_only_relations_that_the_text_can_name(sql: str, names: set[str]) -> None:
    """In a namespace of a thousand Dataflows all of them would take longer to tell than most queries take. A name that
    is a part of a word is told too, as `s` mostly is."""
    known, planner = registry(), Planner()
    for name in ("delays", "delays-2", "other"):
        add_dataflow(known, name, shards=("s.a",))
    ask(StatementCache(known, cast(PlannerClient, planner), PlannerAdmission(planner_queue())), sql)

    assert {r.parent for r in planner.asked[0].catalogue.relations} - {"s"} == names


def test_the_owner_of_a_relation_follows_the_registry() -> None:
    """Rights are by owner: one that is new is known at once, one that is gone is nobody's."""
    known = registry()
    made = StatementCache(known, cast(PlannerClient, Planner()), PlannerAdmission(planner_queue()))
    index = add_dataflow(known, "d", shards=("s.a",))
    assert {str(made.owners("ns", None)[id]) for id in (GlobalId("s.b"), index)} == {"DataSource s", "Dataflow d"}

    known.forget(Key(DATAFLOWS, "ns", "d"))
    assert index not in made.owners("ns", None)


def test_statements_of_postgresqls_dialect_are_planned_twice_until_a_relation_changes() -> None:
    """Their plans are none of the same text in another dialect."""
    known, planner = registry(), TemplatePlanner()
    made = StatementCache(known, cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    add_dataflow(known, "delays", shards=("s.a",))
    statements = [f"SELECT a FROM delays WHERE a = {value} LIMIT 100 OFFSET 1" for value in range(2, 12)]

    def ask_in(dialect: str) -> list[object]:
        return [asyncio.run(made.planned("anne", "ns", sql, "default", dialect)) for sql in statements]

    for dialect in ("postgres", "spark"):
        assert ask_in(dialect) == [planner.plan_of(sql) for sql in statements]
    assert [request.dialect for request in planner.asked] == ["postgres"] * 2 + ["spark"] * 2
    add_dataflow(known, "delays", shards=("s.b",))
    assert ask_in("postgres") == [planner.plan_of(sql) for sql in statements]
    assert [request.dialect for request in planner.asked[4:]] == ["postgres"] * 2


def test_statements_of_dialects_whose_literals_are_not_known_are_planned_once_each() -> None:
    planner = TemplatePlanner()
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    for value in (2, 3, 4, 2, 3, 4):
        asyncio.run(made.planned("anne", "ns", f"SELECT a FROM s.a WHERE a = {value}", "default", "duckdb"))
    assert len(planner.asked) == 3


def test_each_instance_has_meanings_of_its_own() -> None:
    """A plan may import the indexes of its own instance alone."""
    planner = Planner()
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    ask(made, "SELECT 1")
    ask(made, "SELECT 1", place="other")
    assert len(planner.asked) == 2


def test_a_refusal_is_not_remembered() -> None:
    """The cause of the refusal may be mended in a way that no name shows."""
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


def test_the_statement_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement that was asked longest ago is forgotten; very long ones are not remembered at all."""
    monkeypatch.setattr(statement_cache, "MAX_STATEMENTS", 2)
    planner = Planner()
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(planner_queue()))
    ask(made, "SELECT 1", "SELECT 2", "SELECT 1", "SELECT 3", "SELECT 1", "SELECT 2")
    assert [r.sql for r in planner.asked] == ["SELECT 1", "SELECT 2", "SELECT 3", "SELECT 2"]
    long = "SELECT " + "1" * MAX_CHARACTERS
    ask(made, long, long)
    assert len(planner.asked) == 6


def test_a_statement_that_the_planner_fails_at_is_tried_ever_more_rarely() -> None:
    """Each try may cost a planner process, and others wait meanwhile. However long it is, and whatever changes."""
    now, known, planner = [0.0], registry(), Planner()
    made = StatementCache(known, cast(PlannerClient, planner), PlannerAdmission(planner_queue(), lambda: now[0]))
    slow = "SELECT slow " + "1" * MAX_CHARACTERS
    tries = []
    for now[0] in range(60):
        assert ask(made, slow, "SELECT 1") == [TIMEOUT, PEEK]
        tries.append(sum("slow" in request.sql for request in planner.asked))

    assert [tries.index(number) for number in (1, 2, 3, 4)] == [0, 5, 15, 35]
    add_dataflow(known, "d", shards=("s.a",))
    assert ask(made, slow, place="other") == [TIMEOUT]
    assert sum("slow" in request.sql for request in planner.asked) == tries[-1]


def test_equal_statements_that_fail_cost_one_planner_process() -> None:
    """The same statement of two callers, at once: one of them waits for its turn."""
    planner = Planner()
    queue = FairQueue("statements", 1, "wait", waiting=8)
    made = StatementCache(registry(), cast(PlannerClient, planner), PlannerAdmission(queue, lambda: 0.0))

    async def both() -> list[object]:
        return await asyncio.gather(*(made.planned(who, "ns", "SELECT slow", "default") for who in ("anne", "bob")))

    assert asyncio.run(both()) == [TIMEOUT, TIMEOUT]
    assert len(planner.asked) == 1
