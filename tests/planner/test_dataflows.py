"""Dataflows of several views and exports: sharing, keys, references, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.planner.catalogue import CATALOGUE, one_view
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.errors import refuse
from tidemark_planner.planning import assemble
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.explain import explain
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.planning import ExportRequest, Planned, PlanRequest, Refused, ViewRequest
from tidemark_protocol.plan.dataflow import DataflowDescription, IndexExport, Settings
from tidemark_protocol.plan.expr import ColumnRef, columns_of
from tidemark_protocol.plan.lir import Get, Mfp, Plan
from tidemark_replica.render.plan.fragments import gets_of

pytestmark = pytest.mark.spark


def request(views: dict[str, str], *exports: ExportRequest) -> PlanRequest:
    return PlanRequest("d", tuple(ViewRequest(n, s) for n, s in views.items()), exports, CATALOGUE, "u1/")


def planned(catalyst: Catalyst, asked: PlanRequest) -> Planned:
    outcome = plan(catalyst, asked)
    assert isinstance(outcome, Planned), outcome
    return outcome


def refused(catalyst: Catalyst, asked: PlanRequest) -> tuple[str, str]:
    outcome = plan(catalyst, asked)
    assert isinstance(outcome, Refused)
    return outcome.diagnostics[0].code, outcome.diagnostics[0].message


def test_views_are_built_once_and_shared(catalyst: Catalyst) -> None:
    """A later view and two exports read the same object; an import has the columns that both views read."""
    views = {"base": "SELECT k, x FROM s.t", "top": "SELECT b.k, t.m FROM base b JOIN s.t ON b.k = t.k"}
    exports = (ExportRequest("i", "index", "base"), ExportRequest("m", "materializedView", "top"))
    outcome = planned(catalyst, request(views, *exports))

    assert [o.id for o in outcome.objects] == ["u1/base", "u1/top"]
    assert [(i.id, i.columns) for i in outcome.source_imports] == [("s.t", (0, 1, 2))]
    assert [(e.name, e.on) for e in outcome.exports] == [("i", "u1/base"), ("m", "u1/top")]
    assert outcome.references == ("s.t",)
    base = outcome.objects[0].plan
    assert isinstance(base, Mfp)
    assert isinstance(base.input, Get)


def key_of_base(planned: Planned) -> list[tuple[int, ...]]:
    """The keys by which the last object's joins read the first object."""
    gets = [get for get in gets_of(planned.objects[-1].plan) if get.id == planned.objects[0].id]
    return [tuple(k.index for k in get.key or () if isinstance(k, ColumnRef)) for get in gets]


@pytest.mark.parametrize(
    ("top", "key", "read_by"),
    [
        ("SELECT b.x, t.m FROM base b JOIN s.t ON b.k = t.k WHERE t.m > 1", ("k",), [(0,)]),
        ("SELECT b.x, t.m FROM base b JOIN s.t ON b.k = t.k WHERE b.x > 1", ("k",), [()]),
        ("SELECT b.x FROM base b JOIN s.u ON b.k = u.k AND b.k = u.y", ("k",), [()]),
        ("SELECT b.x, t.m FROM base b JOIN s.t ON b.k = t.k", ("x",), [()]),
        ("SELECT b.x, t.m FROM base b JOIN s.t ON b.k = t.k", None, [()]),
        ("SELECT b.x FROM base b JOIN s.t ON b.k = t.k JOIN s.u ON u.k = t.k", ("k",), [(0,)]),
        ("SELECT b.x, c.x AS y FROM base b JOIN base c ON b.k = c.k", ("k",), [(0,), (0,)]),
        ("SELECT b.q, t.m FROM (SELECT k, 10 div x AS q FROM base) b JOIN s.t ON b.k = t.k", ("k",), [()]),
        ("SELECT b.x FROM base b JOIN s.u ON b.k = u.k AND b.x = u.y", ("k",), [()]),
        ("SELECT b.x FROM base b JOIN s.u ON b.k = u.k AND b.x = u.y", ("x", "k"), [(1, 0)]),
        ("SELECT b.x FROM s.u JOIN base b ON b.k = u.k AND b.x = u.y", ("x",), [()]),
        ("SELECT b.x FROM base b JOIN s.u ON b.k = u.k JOIN s.t ON t.k = b.k AND t.x = b.x", ("k",), [(0,)]),
        (
            "WITH RECURSIVE r (k) AS (SELECT k FROM s.u UNION SELECT CAST(b.x AS bigint) "
            "FROM r JOIN base b ON r.k = b.k) SELECT k FROM r",
            ("k",),
            [],
        ),
    ],
)
def test_a_later_view_joins_the_index_of_an_earlier_one(
    catalyst: Catalyst, top: str, key: tuple[str, ...] | None, read_by: list[tuple[int, ...]]
) -> None:
    """By its key, where that has one column for each equality; unless what is computed below the join filters or may
    fail.

    Inside a recursion it reads the rows.
    """
    views = {"base": "SELECT k, x FROM s.t", "top": top}
    exports = (ExportRequest("i", "index", "base", key), ExportRequest("m", "materializedView", "top"))
    outcome = planned(catalyst, request(views, *exports))

    assert key_of_base(outcome) == read_by
    if not read_by:
        assert [g.key for o in outcome.objects[1:] for g in gets_of(o.plan) if g.id == "u1/base"] == [None]


@pytest.mark.parametrize(
    ("condition", "objects"),
    [("", ["u1/arranged/0", "u1/one", "u1/two"]), ("WHERE t.x > 0", ["u1/one", "u1/two"])],
)
def test_views_share_the_arrangement_of_a_table(catalyst: Catalyst, condition: str, objects: list[str]) -> None:
    """By one key, with the columns of the view that needs most; not where a view filters its rows."""
    views = {
        "one": f"SELECT t.x, u.y FROM s.t JOIN s.u ON t.k = u.k {condition}",
        "two": "SELECT t.x, t.m FROM s.t JOIN tpch.nation n ON t.k = n.n_regionkey",
    }
    outcome = planned(catalyst, request(views, *(ExportRequest(name, "index", name) for name in views)))

    assert [o.id for o in outcome.objects] == objects
    assert outcome.explain.count("Get u1/arranged/0 by [c0]") == (0 if condition else 2)


COUNTS = "SELECT k, count(*) AS c, sum(10 div x) AS q FROM s.t GROUP BY k"


@pytest.mark.parametrize(
    ("views", "objects"),
    [
        ((f"{COUNTS} HAVING c > 1", f"SELECT u.y, z.c, z.q FROM s.u JOIN ({COUNTS}) z ON u.k = z.k"), ["u1/shared/0"]),
        ((COUNTS, f"SELECT max(c) AS c, max(q) AS q, max(k) AS k FROM ({COUNTS})"), []),
        ((f"SELECT q FROM ({COUNTS}) WHERE k > 1", f"SELECT q FROM ({COUNTS}) WHERE k > 2"), []),
        (("SELECT k, 10 div x AS q FROM s.t", "SELECT k, 10 div x AS q FROM s.t UNION ALL SELECT 1, 2"), []),
    ],
)
def test_views_share_equal_parts(catalyst: Catalyst, views: tuple[str, str], objects: list[str]) -> None:
    """With other conditions on the groups, and none below them; a whole view is read itself; what keeps no state is
    computed by each.
    """
    named = dict(zip(("one", "two"), views, strict=True))
    outcome = planned(catalyst, request(named, *(ExportRequest(name, "index", name) for name in named)))
    found = [o.id for o in outcome.objects if "arranged" not in o.id]

    assert found == [*objects, "u1/one", "u1/two"]
    shared = objects[0] if objects else "u1/one"
    read = [get.id for o in outcome.objects for get in gets_of(o.plan)].count(GlobalId(shared))
    assert read == (2 if objects else int("max" in views[1]))


@pytest.mark.parametrize(
    ("of", "by"),
    [("k, count(*) AS n", "[c0]"), ("sum(10 div x) AS n, k", "[c1]"), ("k, min(x) AS n", None)],
)
def test_a_view_reads_the_groups_of_an_earlier_one_by_their_key(catalyst: Catalyst, of: str, by: str | None) -> None:
    """In the state of their reduction; not groups whose state has no sums. A materialized view is none the less so."""
    views = {"groups": f"SELECT {of} FROM s.t GROUP BY k", "top": "SELECT u.y, g.n FROM s.u JOIN groups g ON u.k = g.k"}
    exports = (ExportRequest("g", "materializedView", "groups"), ExportRequest("m", "materializedView", "top"))
    shown = planned(catalyst, request(views, *exports)).explain

    assert ("Get u1/groups by [" in shown) == (by is not None)
    assert by is None or f"Get u1/groups by {by}" in shown


def test_a_refusal_names_the_view_whose_part_it_is_about(catalyst: Catalyst, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the part is shared, so that an object without a view has it."""
    part = "SELECT k, sum(x + 7) AS c FROM s.t GROUP BY k"
    asked = request({"one": f"{part} HAVING c > 1", "two": f"{part} HAVING c > 2"}, ExportRequest("m", "index", "two"))
    assert [o.id for o in planned(catalyst, asked).objects] == ["u1/shared/0", "u1/one", "u1/two"]

    def refusing(catalyst: Catalyst, plans: Sequence[Plan]) -> None:
        if any("7" in explain(plan) for plan in plans):
            refuse("TYPE", "the text does not round trip")

    monkeypatch.setattr(assemble, "check_round_trip", refusing)
    outcome = plan(catalyst, asked)
    assert isinstance(outcome, Refused)
    assert outcome.diagnostics[0].view == "one"


def test_an_input_with_a_column_of_the_table_twice_shares_nothing(catalyst: Catalyst) -> None:
    """A delta join looks it up by both, which of the table are one."""
    twice = """
    SELECT q.p, n.n_name, z.m FROM (SELECT k AS a, k AS b, x AS p FROM s.t) q
    JOIN tpch.nation n ON q.a = n.n_nationkey AND q.b = n.n_regionkey JOIN s.t z ON z.k = n.n_nationkey
    """
    outcome = planned(catalyst, one_view(twice))
    assert {get.id for built in outcome.objects for get in gets_of(built.plan)} >= {"s.t"}


def test_a_materialized_view_alone_is_no_index(catalyst: Catalyst) -> None:
    views = {"base": "SELECT k, x FROM s.t", "top": "SELECT b.x, t.m FROM base b JOIN s.t ON b.k = t.k"}
    exports = (ExportRequest("b", "materializedView", "base", ("k",)), ExportRequest("m", "materializedView", "top"))

    assert key_of_base(planned(catalyst, request(views, *exports))) == [()]


def test_a_view_hides_a_dataflow_of_the_same_name(catalyst: Catalyst) -> None:
    """`totals` is the view; the Dataflow is still reached in two parts."""
    views = {"totals": "SELECT k FROM s.u", "v": "SELECT a.k, b.n FROM totals a JOIN totals.totals b ON a.k = b.k"}
    outcome = planned(catalyst, request(views, ExportRequest("v", "index", "v")))

    assert outcome.references == ("s.u", "totals.totals")


def test_the_key_is_unique_where_known_or_as_asked_or_all_columns(catalyst: Catalyst) -> None:
    """Default keys: the columns of GROUP BY, the requested key, and all columns."""
    grouped = "SELECT count(*) AS n, x, s FROM s.t GROUP BY s, x"
    default = planned(catalyst, one_view(grouped)).exports[0]
    asked = planned(catalyst, one_view(grouped, key=("N",))).exports[0]
    plain = planned(catalyst, one_view("SELECT x, s FROM s.t")).exports[0]

    assert (default.key, default.unique) == ((2, 1), True)
    assert (asked.key, asked.unique) == ((0,), False)
    assert (plain.key, plain.unique) == ((0, 1), False)


def test_a_plan_makes_a_dataflow_that_a_replica_accepts(catalyst: Catalyst) -> None:
    """The description made from the answer passes the replica's check."""
    outcome = planned(catalyst, one_view("SELECT k, sum(m) AS m FROM s.t WHERE x > 1 GROUP BY k"))
    export = outcome.exports[0]
    index = IndexExport(GlobalId("u1/v/index"), export.on, export.key, export.columns)

    check_dataflow(DataflowDescription("d", outcome.source_imports, (), outcome.objects, (index,), (), Time(0)))


def test_nothing_that_can_fail_reads_a_column_computed_beside_it(catalyst: Catalyst) -> None:
    """Predicates and outputs are over the operator's input alone, so that each fails separately."""
    sql = "SELECT q, q + 1 AS r FROM (SELECT 10 / x AS q FROM s.t) WHERE q > 1"
    node = planned(catalyst, one_view(sql)).objects[0].plan

    assert isinstance(node, Mfp)
    width = len(node.mfp.input)
    assert all(c < width for e in (*node.mfp.expressions, *node.mfp.predicates) for c in columns_of(e))


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (request({"a": "SELECT k FROM b", "b": "SELECT k FROM s.t"}), "UNRESOLVED_RELATION"),
        (request({"a": "SELECT k FROM a"}), "UNRESOLVED_RELATION"),
        (request({"a": "SELECT k FROM s.t", "A": "SELECT k FROM s.t"}), "DUPLICATE_NAME"),
        (request({"a": "SELECT k FROM s.t"}, ExportRequest("e", "index", "zz")), "UNRESOLVED_RELATION"),
        (request({"a": "SELECT k FROM s.t"}, ExportRequest("e", "index", "a", ("zz",))), "UNRESOLVED_COLUMN"),
        (replace(one_view("SELECT k FROM s.t"), dialect="oracle"), "UNSUPPORTED"),
        (replace(one_view("SELECT k FROM s.t"), settings=Settings(time_zone="Europe/Berlin")), "UNSUPPORTED"),
        (one_view("SELECT k FROM s.t WHERE s = '" + "x" * 131_072 + "'"), "TOO_LARGE"),
        (one_view("SELECT " + "+".join(["x"] * 200) + " AS z FROM s.t"), "TOO_LARGE"),
    ],
)
def test_an_unplannable_text_is_refused(catalyst: Catalyst, asked: PlanRequest, code: str) -> None:
    """Wrong orders of views, names, settings and sizes are refused."""
    assert refused(catalyst, asked)[0] == code


def test_a_refusal_names_its_view(catalyst: Catalyst) -> None:
    """The diagnostic names the view."""
    outcome = plan(catalyst, request({"a": "SELECT k FROM s.t", "b": "SELECT zz FROM a"}))

    assert isinstance(outcome, Refused)
    assert outcome.diagnostics[0].view == "b"


def test_a_name_that_a_delta_table_cannot_have_is_refused_only_where_it_is_stored(catalyst: Catalyst) -> None:
    """The message names the characters and both ways out; an index, a view and a query have the name."""
    views = {"base": "SELECT k AS `Größe x` FROM s.t", "top": "SELECT `Größe x` AS n FROM base"}
    index, stored = ExportRequest("i", "index", "base", ("Größe x",)), ExportRequest("m", "materializedView", "base")

    made = planned(catalyst, request(views, index, replace(stored, view="top")))
    assert [[c.name for c in export.columns] for export in made.exports] == [["Größe x"], ["n"]]
    code, message = refused(catalyst, request(views, stored))
    assert code == "RESERVED_NAME"
    assert "the column `Größe x` cannot be stored" in message
    assert "rename it with AS, or export the view as an index" in message
    assert "needs a name" not in message
