"""Plans as people read them: with the names of columns."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.planner.catalogue import one_view
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.explain import explain_planned
from tidemark_protocol.explained_plan import ExplainedPlan
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import ExportRequest, Planned, PlanRequest, ViewRequest

pytestmark = pytest.mark.spark
INDEXED = {GlobalId("live/object"): ("k", "n")}


def explained(catalyst: Catalyst, request: PlanRequest) -> str:
    planned = plan(catalyst, request)
    assert isinstance(planned, Planned), planned
    return explain_planned(planned, INDEXED).text()


@pytest.mark.parametrize(
    ("sql", "lines"),
    [
        (
            "SELECT s, x + 1 AS y FROM s.t WHERE m > 2",
            ("map [(x + 1)] filter [(m > CAST(2.00BD AS DECIMAL(15,2)))] project [s, c3]", "Get s.t"),
        ),
        (
            "SELECT t.s, count(*) AS n, sum(u.y) AS total FROM s.t JOIN s.u USING (k) GROUP BY t.s",
            ("Reduce key=[s] values=[y]", "on [k = k] keep [s | y]"),
        ),
        ("SELECT a.k, b.k AS other FROM s.u a JOIN s.u b ON a.y = b.k", ("on [CAST(y AS BIGINT) = k]",)),
        ("SELECT user, `Größe x` FROM staff.people ORDER BY `Größe x` DESC LIMIT 3", ("order=[`Größe x` desc",)),
        ("SELECT k, row_number() OVER (PARTITION BY s ORDER BY y) AS r FROM s.u", ("partition=[s] order=[y",)),
        ("SELECT k, n FROM live WHERE n > 3", ("import index live/object by [k]", "filter [(n > 3L)]")),
        ("SELECT k FROM s.t UNION ALL SELECT k FROM s.u", ("Union", "Get s.t")),
        ("SELECT k AS c7 FROM (SELECT k, x AS c7 FROM s.t WHERE x > 1) q WHERE c7 < 5", ("(x < 5)",)),
    ],
)
def test_columns_have_their_names(catalyst: Catalyst, sql: str, lines: tuple[str, ...]) -> None:
    """Columns of imports keep their names as far as they pass; a computed one, or one that is there twice, has its
    position."""
    text = explained(catalyst, one_view(sql))

    assert [line for line in lines if line not in text] == [], text


def test_who_reads_the_index_of_an_earlier_view_is_shown(catalyst: Catalyst) -> None:
    """Each join of it, by the key."""
    asked = one_view("SELECT k, x FROM s.t")
    joins = "SELECT v.x FROM v JOIN s.u ON v.k = u.k UNION ALL SELECT v.x FROM v JOIN v o ON v.k = o.k"
    index = ExportRequest("i", "index", "v", ("k",))
    exports = (index, replace(index, name="again"), replace(asked.exports[0], name="w", view="w"))
    text = explained(catalyst, replace(asked, views=(*asked.views, ViewRequest("w", joins)), exports=exports))

    assert text.count("Get u1/v by [k]") == 3, text


def test_a_later_view_reads_the_names_that_an_earlier_export_has(catalyst: Catalyst) -> None:
    """Computed columns have a name there."""
    asked = one_view("SELECT k, x + 1 AS more FROM s.t")
    both = (*asked.views, ViewRequest("w", "SELECT more FROM v WHERE more > 2"))
    exports = (*asked.exports, replace(asked.exports[0], name="w", view="w"))

    assert "filter [(more > 2)]" in explained(catalyst, replace(asked, views=both, exports=exports))


def test_estimates_stand_beside_what_is_counted(catalyst: Catalyst) -> None:
    """The estimates are of imports, behind filters, of joins and groups; nothing where an input is not counted."""
    sql = "SELECT t.s, count(*) AS n FROM s.t JOIN s.u USING (k) WHERE t.x = 3 GROUP BY t.s"
    planned = plan(catalyst, one_view(sql))
    assert isinstance(planned, Planned)
    lines = explain_planned(planned, INDEXED, {GlobalId("s.t"): 1 << 20, GlobalId("s.u"): 5000}).text().splitlines()
    shown = [(line.split()[0], line.partition(" (about ")[2]) for line in lines if " (about " in line]

    assert shown == [
        ("Reduce", "16,384 rows)"),
        ("Join", "65,536 rows)"),
        ("Mfp", "65,536 rows)"),
        ("Get", "1,048,576 rows)"),
        ("Get", "4,096 rows)"),
    ]
    half = explain_planned(planned, INDEXED, {GlobalId("s.u"): 5000}).text()
    assert [line.split()[0] for line in half.splitlines() if " (about " in line] == ["Get"]


@pytest.mark.parametrize(
    ("sql", "upkeep"),
    [
        ("SELECT k, x + 1 AS c FROM s.t WHERE x > 1 UNION ALL SELECT k, y FROM s.u", {}),
        (
            "SELECT s, sum(x) AS c FROM s.t GROUP BY s",
            {"Reduce": "incremental, about 1 row a change: the totals of its"},
        ),
        (
            "SELECT count(DISTINCT x) AS c FROM s.t",
            {"Reduce": "incremental, about 1 row a change: the totals and distinct"},
        ),
        (
            "SELECT max(x) AS c FROM s.t",
            {"Reduce": "incremental, about 18 rows a change: the values of the only group"},
        ),
        (
            "SELECT s, median(x) AS c FROM s.t GROUP BY s",
            {"Reduce": "computed anew, about 4 rows a change: percentile_cont"},
        ),
        ("SELECT median(x) AS c FROM s.t", {"Reduce": "computed anew, about 1,048,576 rows a change: percentile_cont"}),
        (
            "SELECT rank() OVER (PARTITION BY s ORDER BY x) AS c FROM s.t",
            {"Window": "computed anew, about 4 rows a change"},
        ),
        ("SELECT rank() OVER (ORDER BY x) AS c FROM s.t", {"Window": "computed anew, about 1,048,576 rows a change"}),
        ("SELECT k FROM s.t ORDER BY x LIMIT 3", {"TopK": "incremental, about 27 rows a change: the rows of the only"}),
        ("SELECT k FROM s.t ORDER BY x LIMIT 0", {}),
        ("SELECT k FROM s.t EXCEPT ALL SELECT k FROM s.u", {"Threshold": "incremental, about 1 row a change"}),
        (
            "SELECT t.x, u.y FROM s.t JOIN s.u USING (k)",
            {
                "Join": "incremental, about 256 rows a change: a change meets the rows of the other inputs with its "
                "key, most where input 1 changes"
            },
        ),
        (
            "SELECT t.x, u.y FROM s.t CROSS JOIN s.u",
            {
                "Join": "incremental, about 1,048,576 rows a change: a change meets all rows of an input, "
                "most where input 1 changes"
            },
        ),
        ("SELECT k FROM s.t WHERE ts <= now()", {"Mfp": "incremental, about 2 rows a change: a row is kept until its"}),
    ],
)
def test_the_upkeep_stands_below_what_keeps_state(catalyst: Catalyst, sql: str, upkeep: dict[str, str]) -> None:
    """The way, the cost of a change, and why; costs are missing where rows are not counted."""
    planned = plan(catalyst, one_view(sql))
    assert isinstance(planned, Planned), planned
    counted = explain_planned(planned, INDEXED, {GlobalId("s.t"): 1 << 20, GlobalId("s.u"): 4096}).text()
    shown, operator = dict[str, str](), ""
    for line in counted.splitlines():
        if line.strip().startswith(("incremental", "computed anew")):
            shown[operator] = line.strip()
        operator = line.split()[0] if line.strip() else ""

    assert shown.keys() == upkeep.keys(), counted
    assert [how for name, how in upkeep.items() if not shown[name].startswith(how)] == [], counted
    if "18 rows" in counted or "27 rows" in counted or "256 rows" in counted:
        assert "rows a change" not in explain_planned(planned, INDEXED).text()


def test_estimates_of_later_objects_and_bindings(catalyst: Catalyst) -> None:
    """A view that another reads, and a binding that is read twice."""
    asked = one_view("SELECT DISTINCT k FROM s.t")
    both = (*asked.views, ViewRequest("w", "SELECT a.k FROM v a JOIN v b ON a.k = b.k JOIN v c ON b.k = c.k LIMIT 100"))
    planned = plan(catalyst, replace(asked, views=both, exports=(replace(asked.exports[0], name="w", view="w"),)))
    assert isinstance(planned, Planned)
    text = explain_planned(planned, INDEXED, {GlobalId("s.t"): 4096}).text()

    assert "Get u1/v" in text
    assert [line for line in text.splitlines() if "Get u1/v" in line and "(about 1,024 rows)" not in line] == []
    assert "limit 100L (about 64 rows)" in text, text


TWO = "SELECT a.k, count(*) AS n FROM v a JOIN v b ON a.k = b.k JOIN s.u ON b.k = u.k WHERE u.s <> '\"<#' GROUP BY a.k"


def two_views(catalyst: Catalyst) -> ExplainedPlan:
    """One view that another reads twice, in a delta join."""
    asked = one_view("SELECT DISTINCT k FROM s.t")
    export = replace(asked.exports[0], name="w", view="w")
    request = replace(asked, views=(*asked.views, ViewRequest("w", TWO)), exports=(export,))
    planned = plan(catalyst, request)
    assert isinstance(planned, Planned), planned
    return explain_planned(planned, INDEXED, {GlobalId("s.t"): 4096, GlobalId("s.u"): 4096})


def test_json_has_the_tree_of_the_text(catalyst: Catalyst) -> None:
    """Operators in their order, their details and estimates."""
    explained = two_views(catalyst)
    document = json.loads(explained.form("json"))

    def drawn(node: dict[str, Any], depth: int) -> list[str]:
        about = f" (about {node['rows']:,} rows)" if "rows" in node else ""
        own = [f"{'  ' * depth}{node['operator']}{about}"]
        own += [f"{'  ' * depth}    {detail}" for detail in node.get("details", ())]
        if (upkeep := node["upkeep"])["how"] != "stateless":
            rows = f", about {upkeep['rows']:,} row{'s' * (upkeep['rows'] != 1)}" if "rows" in upkeep else ""
            own += [f"{'  ' * depth}    {upkeep['how']}{rows}{' a change' * bool(rows)}: {upkeep['why']}"]
        return own + [line for below in node.get("inputs", ()) for line in drawn(below, depth + 1)]

    text = explained.form("text")
    assert document["imports"] == [line for line in text.splitlines() if line.startswith("import")]
    assert [o["id"] for o in document["objects"]] == ["u1/v", "u1/w"]
    for built in document["objects"]:
        assert "\n".join([f"{built['id']} =", *drawn(built["plan"], 0), ""]) in text
    assert "(about " in text


def test_a_picture_has_a_node_for_each_operator(catalyst: Catalyst) -> None:
    """Arrows lead from inputs to readers, dotted ones from an object to its readers; labels end nowhere early."""
    explained = two_views(catalyst)
    chart = explained.form("mermaid")
    labels = dict(re.findall(r'^ +(n\d+)\["([^"<>]*(?:<br/>[^"<>]*)*)"\]$', chart, re.MULTILINE))
    arrows = re.findall(r"^ +(n\d+) (-->|-\.->) (n\d+)$", chart, re.MULTILINE)
    known = r'flowchart BT|  subgraph o\d+\["[^"]*"\]|  end|    n\d+\[".*"\]|  (  )?n\d+ (-->|-\.->) n\d+'

    assert [line for line in chart.splitlines() if not re.fullmatch(known, line)] == []
    text = re.sub(r"^ +(path|incremental).*\n", "", explained.form("text"), flags=re.MULTILINE)
    assert len(labels) == len(re.findall(r"^ +\w+", text, re.MULTILINE)) + 2  # two roots
    assert any("<br/>incremental, about 1 row a change: " in label for label in labels.values())
    assert {end for one, _, other in arrows for end in (one, other)} == set(labels)
    assert sorted(labels[to].partition("<br/>")[0] for _, kind, to in arrows if kind == "-.->") == ["Get u1/v"] * 2
    roots = [node for node in labels if all(one != node or kind == "-.->" for one, kind, _ in arrows)]
    assert [labels[root].split()[0] for root in roots] == ["Reduce", "Reduce"]
    assert "#34;#60;#35;" in chart
