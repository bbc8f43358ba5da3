"""Planning of continual tasks: the watched input, the output, and refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.planner.catalogue import CATALOGUE
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.explain import explain
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.planning import (
    ExportRequest,
    Planned,
    PlannedTask,
    PlanRequest,
    Refused,
    TaskRequest,
    ViewRequest,
)
from tidemark_protocol.plan.dataflow import ContinualTaskSink, DataflowDescription, ShardMetadata, SinkExport
from tidemark_protocol.types import BIGINT, INT, STRING, Column

pytestmark = pytest.mark.spark

ALL = "SELECT k, s, _change_type AS what FROM table_changes('s.u')"
EXPIRED = "SELECT log.* FROM log WHERE k IN (SELECT k FROM table_changes('s.u'))"
ONCE = "SELECT k FROM table_changes('s.u') c WHERE NOT EXISTS (SELECT * FROM log.log l WHERE l.k = c.k)"
K = (Column("k", BIGINT),)


def request(views: dict[str, str], task: TaskRequest | None, *more: ExportRequest) -> PlanRequest:
    exports = (ExportRequest("log", "continualTask", next(iter(views)), task=task), *more)
    return PlanRequest("log", tuple(ViewRequest(n, s) for n, s in views.items()), exports, CATALOGUE, "u1/")


def planned(catalyst: Catalyst, views: dict[str, str], task: TaskRequest) -> Planned:
    """The plan; its description passes the replica's check."""
    outcome = plan(catalyst, request(views, task))
    assert isinstance(outcome, Planned), outcome
    (export,) = outcome.exports
    assert export.task is not None
    shard = ShardMetadata(ShardId("out"), "shards/out", export.columns)
    sink = SinkExport(GlobalId("t"), export.on, ContinualTaskSink(shard, export.task.watches, export.task.own))
    check_dataflow(DataflowDescription("log", outcome.source_imports, (), outcome.objects, (), (sink,), Time(0)))
    return outcome


def test_the_watched_table_is_imported_whole(catalyst: Catalyst) -> None:
    """A change in a column that the SQL does not read is a change as well; names are compared without case."""
    outcome = planned(catalyst, {"v": ALL.replace("s.u", "S.U")}, TaskRequest("s.U"))

    assert [(i.id, i.columns) for i in outcome.source_imports] == [("s.u", (0, 1, 2))]
    assert outcome.exports[0].task == PlannedTask(GlobalId("s.u"))
    assert (outcome.exports[0].monotonic, outcome.exports[0].unique) == (True, False)
    assert [(o.id, explain(o.plan)) for o in outcome.objects] == [
        ("u1/log/changes", "Changes\n  Get s.u\n"),
        ("u1/v", "Mfp project [c0, c2, c3]\n  Get u1/log/changes\n"),
    ]


def test_changes_without_a_reader_are_not_built(catalyst: Catalyst) -> None:
    """The watched shard is imported even if no view reads it."""
    outcome = planned(catalyst, {"v": "SELECT count(*) AS n FROM s.t"}, TaskRequest("clicks.log"))

    assert [i.id for i in outcome.source_imports] == ["clicks.log", "s.t"]
    assert [o.id for o in outcome.objects] == ["u1/v"]
    assert outcome.references == ("clicks.log", "s.t")


def test_a_task_deletes_existing_rows_only(catalyst: Catalyst) -> None:
    """The delete view reads the output by its name, and is met with it; a task that deletes does not only grow."""
    outcome = planned(catalyst, {"v": ALL, "old": EXPIRED}, TaskRequest("s.u", "old"))
    export, rows = outcome.exports[0], outcome.objects[-1]

    assert (export.on, export.task, export.monotonic) == (
        rows.id,
        PlannedTask(GlobalId("s.u"), GlobalId("u1/log/own")),
        False,
    )
    assert explain(rows.plan).count("Get u1/log/own") == 1
    assert "Threshold" in explain(rows.plan)
    assert "u1/log/own" not in outcome.references


def test_a_task_that_reads_its_own_output_declares_its_columns(catalyst: Catalyst) -> None:
    """The task's own name means the output, even if another relation has it."""
    outcome = planned(catalyst, {"log": ONCE}, TaskRequest("s.u", columns=K))

    assert outcome.exports[0].columns == K
    assert outcome.exports[0].task == PlannedTask(GlobalId("s.u"), GlobalId("u1/log/own"))


def test_an_edit_after_which_a_column_may_be_null_goes_on_with_the_table(catalyst: Catalyst) -> None:
    """Equal columns mean that what was written stays; it is how a task that failed is mended."""
    fails, mended = ("SELECT CAST(k AS int) AS k FROM table_changes('s.u')".replace("CAST", c) for c in CASTS)
    before, after = (planned(catalyst, {"v": sql}, TaskRequest("s.u")).exports[0] for sql in (fails, mended))

    assert before.columns == after.columns == (Column("k", INT),)


CASTS = ("CAST", "TRY_CAST")


def test_recursion_may_begin_with_the_changes(catalyst: Catalyst) -> None:
    """table_changes() can be joined like any relation."""
    reached = "SELECT k FROM table_changes('s.u') UNION SELECT t.k FROM r JOIN s.t ON t.x = r.k"
    sql = f"WITH RECURSIVE r AS ({reached}) SELECT k FROM r"
    assert planned(catalyst, {"v": sql}, TaskRequest("s.u"))


WATCH = TaskRequest("s.u")
REFUSED: list[tuple[str, str, PlanRequest]] = [
    ("UNRESOLVED_RELATION", "relation s.nix does not exist", request({"v": ALL}, TaskRequest("s.nix"))),
    ("UNRESOLVED_RELATION", "relation s does not exist; s has s.t, s.u", request({"v": ALL}, TaskRequest("s"))),
    ("UNSUPPORTED", "live is an index, and cannot be watched", request({"v": ALL}, TaskRequest("live"))),
    ("UNSUPPORTED", "live.live is an index: a continualTask resumes", request({"v": "SELECT n FROM live"}, WATCH)),
    ("UNSUPPORTED", "must be the only export", request({"v": ALL}, WATCH, ExportRequest("i", "index", "v"))),
    ("UNSUPPORTED", "needs the input that it watches", request({"v": ALL}, None)),
    (
        "UNSUPPORTED",
        "this continualTask watches s.u alone",
        request({"v": ALL.replace("s.u", "s.t")}, WATCH),
    ),
    ("UNSUPPORTED", "takes one argument", request({"v": "SELECT * FROM table_changes('s.u', 1)"}, WATCH)),
    ("UNSUPPORTED", "takes one argument", request({"v": "SELECT * FROM table_changes(s)"}, WATCH)),
    ("UNSUPPORTED", "declare them in continualTask.columns", request({"v": ONCE}, WATCH)),
    (
        "TYPE",
        "v gives (k bigint), but continualTask.columns declares (k string)",
        request({"v": ONCE.replace("l.k", "CAST(l.k AS BIGINT)")}, TaskRequest("s.u", columns=(Column("k", STRING),))),
    ),
    (
        "TYPE",
        "v gives (k bigint, s string, what string), but continualTask.columns declares (k bigint)",
        request({"v": ALL}, TaskRequest("s.u", columns=K)),
    ),
    (
        "TYPE",
        "old gives rows of (bigint), but the output has columns of (bigint, string, string)",
        request({"v": ALL, "old": "SELECT k FROM log"}, TaskRequest("s.u", "old")),
    ),
    ("UNRESOLVED_RELATION", "there is no view nix", request({"v": ALL}, TaskRequest("s.u", "nix"))),
    ("DUPLICATE_NAME", "view log has the name by which views read the output", request({"v": ALL, "log": ALL}, WATCH)),
    (
        "FORBIDDEN_FUNCTION",
        "table_changes is not on the list",
        request({"v": "SELECT table_changes('s.u') AS x"}, WATCH),
    ),
]


@pytest.mark.parametrize(
    ("code", "message", "asked"), REFUSED, ids=[f"{i}-{s[:40]}" for i, (_, s, _) in enumerate(REFUSED)]
)
def test_a_task_is_refused_by_name(catalyst: Catalyst, code: str, message: str, asked: PlanRequest) -> None:
    """The refusal says what is wrong and what to do."""
    outcome = plan(catalyst, asked)
    assert isinstance(outcome, Refused), outcome
    (diagnostic,) = outcome.diagnostics

    assert diagnostic.code == code
    assert message in diagnostic.message


def test_changes_are_for_tasks(catalyst: Catalyst) -> None:
    """table_changes() is refused outside continual tasks."""
    asked = PlanRequest("d", (ViewRequest("v", ALL),), (ExportRequest("v", "index", "v"),), CATALOGUE, "u1/")
    outcome = plan(catalyst, asked)
    assert isinstance(outcome, Refused)
    (diagnostic,) = outcome.diagnostics

    assert (diagnostic.code, diagnostic.line, diagnostic.column) == ("UNSUPPORTED", 1, 40)
    assert "table_changes is not supported outside the views of a continualTask" in diagnostic.message


GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "continual-tasks.md"


def manifests() -> list[Dataflow]:
    """The examples of the guide, whole and in parts."""
    whole, parts = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    spec = {"instance": "default", **yaml.safe_load(parts)}
    made = {"kind": "Dataflow", "metadata": {"name": "prices"}, "spec": spec}
    server = {"namespace": "default", "uid": "u", "generation": 1, "resourceVersion": "1"}
    bodies = [yaml.safe_load(whole), made]
    return [Dataflow.parse({**body, "metadata": body["metadata"] | server}) for body in bodies]


@pytest.mark.parametrize("manifest", manifests(), ids=lambda m: str(m.meta.name))
def test_the_guides_manifests_are_planned(catalyst: Catalyst, manifest: Dataflow) -> None:
    """The examples are planned unchanged."""
    asked = PlanRequest(manifest.meta.name, manifest.views, manifest.exports, CATALOGUE, "u1/")

    assert isinstance(plan(catalyst, asked), Planned)


def test_the_guides_sql_is_planned(catalyst: Catalyst) -> None:
    """Retention as a view to delete by, and each value once, with its column declared."""
    (text,) = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    expired, once = (part.split("\n", 1)[1] for part in re.split(r"\n\n(?=--)", text))
    added = "SELECT o_orderkey, _commit_timestamp AS changed_at FROM table_changes('tpch.orders')"
    views = (ViewRequest("added", added), ViewRequest("expired", expired))
    log = ExportRequest("orderlog", "continualTask", "added", task=TaskRequest("tpch.orders", "expired"))
    column = (Column("o_custkey", BIGINT),)
    seen = ExportRequest("seen", "continualTask", "v", task=TaskRequest("tpch.orders", columns=column))

    assert isinstance(plan(catalyst, PlanRequest("orderlog", views, (log,), CATALOGUE, "u1/")), Planned)
    assert isinstance(
        plan(catalyst, PlanRequest("seen", (ViewRequest("v", once),), (seen,), CATALOGUE, "u1/")), Planned
    )
