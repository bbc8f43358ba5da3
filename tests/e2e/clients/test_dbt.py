"""dbt's own program with the adapter of `dbt/`, before a whole system: the project of examples/dbt."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.dbt import environment
from tests.e2e.clients.test_pgwire import account, serving
from tests.e2e.system import CHECKOUT, PATIENCE_SECONDS, System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

COMMANDS = CHECKOUT / "tests" / "dbt" / "commands.py"
MODEL = "orders_by_nation.sql"
REFUSED = {
    "grown": ("config(materialized='incremental')", "a materialized view is always incremental"),
    "apart": ("config(schema='marts')", "a namespace has one schema"),
    "granted": ("config(grants={'select': ['anne']})", "rights are those of Kubernetes"),
}


class Project:
    """A copy of the example, and the environment of its profile."""

    def __init__(self, folder: Path, options: dict[str, Any], token: str) -> None:
        shutil.copytree(CHECKOUT / "examples" / "dbt", folder, ignore=shutil.ignore_patterns("target", "logs"))
        self.folder = folder
        self.variables = {
            "TIDEMARK_HOST": options["host"],
            "TIDEMARK_PORT": str(options["port"]),
            "TIDEMARK_NAMESPACE": options["dbname"],
            "TIDEMARK_TOKEN": token,
            "TIDEMARK_CA": options["sslrootcert"],
        }

    def run(self, *commands: str, check: int = 0) -> str:
        """dbt's commands, one after the other; what they print."""
        given = [json.dumps(command.split()) for command in commands]
        folder, variables = self.folder, self.variables
        return environment.run(
            str(COMMANDS), *given, folder=folder, variables=variables, timeout=PATIENCE_SECONDS, check=check
        )

    def results(self) -> dict[str, str]:
        """Statuses of the last command, by the name of the node."""
        found = json.loads((self.folder / "target" / "run_results.json").read_text())["results"]
        return {each["unique_id"].split(".")[2]: each["status"] for each in found}

    def edit(self, model: str, old: str, new: str) -> None:
        path = self.folder / "models" / model
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@contextmanager
def always_answered(connection: psycopg.Connection[Any], sql: str) -> Iterator[list[tuple[Any, ...]]]:
    """Asks again and again until the block ends; the answers. A query that fails, or has no row, fails the test."""
    answers: list[tuple[Any, ...]] = []
    failed: list[BaseException] = []
    over = threading.Event()

    def ask() -> None:
        try:
            while not over.wait(0.02):  # each query is planned, and takes the core that dbt needs
                answers.append(*connection.execute(sql.encode()).fetchall())
        except BaseException as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield answers
    finally:
        over.set()
        asking.join()
    assert not failed, f"after {len(answers)} answers: {failed[0]!r}"


def test_the_example_is_run_tested_described_and_edited(system: System, tmp_path: Path) -> None:
    token = account(system, "dbt")
    with serving(system, tmp_path) as options, psycopg.connect(**options, password=token) as connection:
        wait_for("orders", lambda: _has_rows(connection, "SELECT max(o_orderkey) FROM tpch.orders"))
        project = Project(tmp_path / "shop", options, token)
        project.run("seed", "run", "test")
        assert set(project.results().values()) == {"pass"}
        assert len(project.results()) == 8
        _stored(system, connection)
        _edited_while_it_is_read(system, connection, project)
        _described(project, system.namespace)
        _refused(project)
        assert token not in "".join(path.read_text() for path in (project.folder / "logs").iterdir())


def _has_rows(connection: psycopg.Connection[Any], sql: str) -> bool:
    try:
        return connection.execute(sql.encode()).fetchone() not in (None, (None,))
    except psycopg.Error:
        return False


def _stored(system: System, connection: psycopg.Connection[Any]) -> None:
    """Dataflows with the names and exports that the models say; a test's failures are a view."""
    spec = system.get("dataflow", "orders-by-segment")["spec"]
    assert spec["index"] == {"key": ["team"]}
    assert spec["dialect"] == "postgres"
    assert "materializedView" in system.get("dataflow", "orders-by-nation")["spec"]
    assert connection.execute('SELECT unique_field FROM "unique-orders-by-nation-n-name"').fetchall() == []
    found = connection.execute('SELECT n_name FROM "orders-by-nation-n-name-idx" WHERE n_nationkey = 3').fetchall()
    assert found == [("CANADA",)]


def _edited_while_it_is_read(system: System, connection: psycopg.Connection[Any], project: Project) -> None:
    """A column is added to one model; the other objects are left alone, in the same run."""
    project.edit(MODEL, "as price", "as price, max(o.o_totalprice) as largest")
    with always_answered(connection, 'SELECT count(*) FROM "orders-by-nation" WHERE price > 0') as answers:
        project.run("run")
    assert min(answers) > (0,), "a query found no rows"
    assert set(project.results().values()) == {"success"}
    row = connection.execute("SELECT largest <= price FROM \"orders-by-nation\" WHERE n_name = 'CANADA'").fetchone()
    assert row == (True,)
    generations = {
        name: system.get("dataflow", name)["metadata"]["generation"]
        for name in ("orders-by-nation", "orders-by-segment", "segments", "orders-by-nation-n-name-idx")
    }
    assert generations == {
        "orders-by-nation": 2,
        "orders-by-segment": 1,
        "segments": 1,
        "orders-by-nation-n-name-idx": 1,
    }


def _described(project: Project, namespace: str) -> None:
    project.run("docs generate")
    catalog = json.loads((project.folder / "target" / "catalog.json").read_text())
    nation = catalog["nodes"]["model.shop.orders_by_nation"]
    assert nation["metadata"]["type"] == "materialized_view"
    assert (nation["metadata"]["database"], nation["metadata"]["schema"]) == (namespace, "public")
    types = {name: column["type"] for name, column in nation["columns"].items()}
    assert types["orders"] == "bigint"
    assert types["largest"] == "numeric(15,2)"
    assert catalog["nodes"]["model.shop.orders_by_segment"]["metadata"]["type"] == "view"
    assert {"source.shop.tpch.orders", "source.shop.tpch.nation"} <= set(catalog["sources"])


def _refused(project: Project) -> None:
    """dbt refuses each kind of model that Tidemark lacks by its name, and its message says what to do."""
    for name, (config, words) in REFUSED.items():
        path = project.folder / "models" / f"{name}.sql"
        path.write_text("{{ " + config + " }} select n_name from {{ source('tpch', 'nation') }}")
        said = project.run(f"run --select {name}", check=1)
        path.unlink()
        assert words in said
        assert name in said
