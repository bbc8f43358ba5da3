"""A Delta table that DuckDB writes: it appends to a table that is there, and changes nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from bench.harness.cache import cache_folder, cached
from tests.storage.delta.delta_tables import bound_versions, check, ingester, spec_of, tick
from tests.storage.ingestion_samples import oks
from tidemark_protocol.plan.ingestion import DeltaTable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

VERSION = "1.5.5"
"""The last version of both packages: the extension has no release for DuckDB 2."""
PROGRAM = Path(__file__).parent / "duckdb_writer_program.py"
COLUMNS = {
    "id": pa.int64(),
    "small": pa.int16(),
    "name": pa.string(),
    "amount": pa.float64(),
    "price": pa.decimal128(18, 2),
    "yes": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "many": pa.list_(pa.int64()),
    "pair": pa.struct([("x", pa.int64()), ("y", pa.string())]),
}
Run = Callable[[str], str]


def _make(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    packages = [f"duckdb=={VERSION}", f"duckdb-extension-delta=={VERSION}"]
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", *packages], check=True)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table with two rows, that delta-rs wrote."""
    full = [1, 2, "a", 0.5, Decimal("1.50"), True, date(2024, 2, 29), datetime(2024, 1, 1, tzinfo=UTC), [1, None]]
    first = dict(zip(COLUMNS, [*full, {"x": 1, "y": "p"}], strict=True))
    table = pa.Table.from_pylist([first, {"id": 2}], pa.schema(COLUMNS.items()))
    write_deltalake(str(tmp_path / "up"), table)
    return str(tmp_path / "up")


@pytest.fixture
def run(path: str, tmp_path: Path) -> Iterator[Run]:
    """Runs a statement of DuckDB; the answer is `ok`, or the error."""
    home = cached(cache_folder() / "writers" / f"duckdb-{VERSION}", _make)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [home / "bin" / "python", PROGRAM, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        answers = process.stdout
        assert answers.readline() == "ready\n", (tmp_path / "log").read_text()

        def run(statement: str) -> str:
            assert process.stdin is not None
            process.stdin.write(json.dumps(statement) + "\n")
            process.stdin.flush()
            return answers.readline().strip()

        yield run
        process.stdin.close()


def test_rows_that_duckdb_inserts_are_followed(path: str, run: Run, tmp_path: Path) -> None:
    """Each commit, transactions of several statements too; delta-rs, which reads the table by itself, agrees."""
    spec = spec_of(DeltaTable("t", path))
    one = ingester(tmp_path, spec)
    one.recover()
    tick(one, 1000)
    row = "-7, 'é', 'NaN'::DOUBLE, -0.01, false, '1815-12-10', '1969-12-31 23:59:59.999999+00'"
    row += ", [NULL, 3], {'x': 1, 'y': 'p'}"
    statements = [
        f"INSERT INTO d VALUES (3, {row})",
        f"INSERT INTO d VALUES (4{', NULL' * 9}), (4{', NULL' * 9})",
        "INSERT INTO d SELECT range, 1, 'many', range / 3, 1, true, NULL, NULL, [range, range], NULL FROM range(50000)",
        "BEGIN",
        "INSERT INTO d SELECT * FROM d WHERE id < 5",
        f"INSERT INTO d VALUES (6, {row})",
        "COMMIT",
    ]
    for at, statement in enumerate(statements):
        assert run(statement) == "ok"
        tick(one, 1100 + 100 * at)

    check(tmp_path, spec)
    assert max(bound_versions(tmp_path, "t").values()) == Table(path).version() >= 4
    assert len(oks(tmp_path, "t")) == 50000 + 2 + 1 + 2 + 10 + 1
    assert one._source.stop_reasons() == {}


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("UPDATE d SET id = 9", "Can only update base table"),
        ("DELETE FROM d", "Can only delete from base table"),
        (
            "MERGE INTO d USING (SELECT 1 id) s ON d.id = s.id WHEN MATCHED THEN DELETE",
            "Can only merge into base tables",
        ),
        ("INSERT INTO d (id) VALUES (1)", "INTERNAL Error"),
        ("CREATE TABLE d.x (a INT)", "Delta tables do not support creating tables"),
    ],
)
def test_duckdb_refuses_other_changes(run: Run, path: str, statement: str, answer: str) -> None:
    """The guide says so."""
    assert answer in run(statement)
    assert Table(path).version() == 0
