"""`kubectl tidemark replan` on real processes: a view that was planned while its tables were empty."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

ROWS = {"calls": 3000, "lines": 3000, "regions": 10}
COLUMNS = {"calls": ("id", "line"), "lines": ("line", "region"), "regions": ("region", "label")}
SQL = """
SELECT r.label, count(*) AS calls FROM phone.calls c JOIN phone.lines l ON c.line = l.line
JOIN phone.regions r ON l.region = r.region GROUP BY r.label
"""


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    columns = {name: [{"name": column, "type": "BIGINT"} for column in COLUMNS[name]] for name in ROWS}
    tables = [{"name": name, "columns": columns[name]} for name in ROWS]
    bare_system.apply("DataSource", "phone", {"instance": "default", "tick": "1s", "table": {"tables": tables}})
    return bare_system


def insert(system: System, table: str, columns: tuple[str, ...], rows: int, folder: Path) -> None:
    file = folder / f"{table}.csv"
    file.write_text("\n".join([",".join(columns), *(f"{at},{at % 10}" for at in range(rows))]) + "\n")
    done = system.tidemark("insert", table, "--from", str(file), "-n", system.namespace)
    assert done.returncode == 0, done.stderr + system.log()


def replan(system: System, *more: str) -> CompletedProcess[str]:
    kubeconfig = ("--kubeconfig", str(system.plane.kubeconfig))
    return system.tidemark("replan", "by-region", "-n", system.namespace, *kubeconfig, *more)


def serving(system: System) -> str:
    name: str = system.get("dataflow", "by-region")["status"]["revision"]["name"]
    return name


def test_a_view_of_tables_that_were_empty_gets_another_plan(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers as before, and a second replan changes nothing."""
    monkeypatch.setenv("PATH", str(system.plane.layout.kubectl.parent), prepend=os.pathsep)
    system.dataflow("by-region", SQL)
    system.wait_hydrated("by-region")
    for name, rows in ROWS.items():
        insert(system, f"phone.{name}", COLUMNS[name], rows, tmp_path)

    noted = "planned when phone.calls was not known to have rows; it has about 2,048 now"
    unknown = "was not known to have rows"
    wait_for("the rows to be reported", lambda: system.explain("by-region").count(unknown) == len(ROWS), system.log)
    assert noted in system.explain("by-region")
    wait_for("the counts", lambda: len(answer(system)) == 10, system.log)
    before, first = answer(system), serving(system)
    present = system.explain("by-region").partition("planned when")[0]
    dry = replan(system, "--dry-run")
    assert "It would get this one" in dry.stdout, dry.stdout + dry.stderr
    assert serving(system) == first

    done = replan(system)
    assert f"Dataflow by-region is planned anew: revision {first.removesuffix('1')}2" in done.stdout, done.stderr
    wait_for("the new plan to serve", lambda: serving(system) != first, system.log)
    assert answer(system) == before
    shown = system.explain("by-region")
    assert shown.partition("\n\n")[2] != present.partition("\n\n")[2]
    assert "(about 2,048 rows)" in shown
    assert "planned when" not in shown

    again = replan(system)
    assert "nothing changes" in again.stdout, again.stdout + again.stderr
    assert "has the plan that it would get" in replan(system, "--dry-run").stdout


@pytest.mark.parametrize(
    "export", [{"materializedView": {}}, {"index": {"key": ["a"]}}], ids=lambda export: min(export)
)
def test_plans_know_the_rows_of_what_dataflows_export(
    system: System, tmp_path: Path, export: dict[str, object]
) -> None:
    """Replicas report them, also to the next operator."""
    name = f"of-{min(export).lower()}"
    columns = [{"name": column, "type": "BIGINT"} for column in ("a", "b")]
    spec = {"instance": "default", "tick": "1s", "table": {"tables": [{"name": "t", "columns": columns}]}}
    system.apply("DataSource", f"src-{name}", spec)
    system.dataflow(name, f"SELECT a, b FROM `src-{name}`.t", **export)
    system.wait_hydrated(name)
    insert(system, f"src-{name}.t", ("a", "b"), 5000, tmp_path)

    def known() -> bool:
        shown = system.explain(f"SELECT b FROM `{name}`.`{name}`")
        return "(about 4,096 rows)" in shown

    wait_for("the rows to be reported", known, system.log)
    system.kill_operator()
    system.start_operator()
    wait_for("the rows to be reported again", known, system.log)


def answer(system: System) -> dict[int, int]:
    rows = system.query("SELECT label, calls FROM `by-region`.`by-region`")["rows"]
    return {row["label"]: row["calls"] for row in rows}
