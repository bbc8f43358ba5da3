"""Any Delta reader can read a shard: the recipes of docs/storage.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import deltalake
import duckdb
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from tests.persist.model import COLUMNS, batch
from tests.s3_fixtures import Place
from tidemark_persist import MaintenancePolicy, Shard, create_or_open

DOCUMENT = Path(__file__).parents[2] / "docs" / "storage.md"
EXPECTED = [("a", 2, 1), ("b", 1, 2)]


@pytest.fixture
def shard(place: Place) -> Shard:
    """Inserts, an update, an error that is still there, and a compaction in between."""
    policy = MaintenancePolicy(checkpoint_commits=2, compact_runs=2)
    shard = create_or_open(place.location, COLUMNS, shard_id="s", policy=policy)
    for upper, rows in enumerate(
        (
            [(("a", 1), 0, 1), (("b", 1), 0, 2)],
            [(("a", 1), 1, -1), (("a", 2), 1, 1)],
            [((None, None, "division by zero"), 2, 1)],
        ),
        start=1,
    ):
        shard.compare_and_append(batch(rows), expected_upper=upper - 1, new_upper=upper, term=1)
        for work in shard.maintenance_due():
            shard.run_maintenance(work)
    return shard


def test_plain_deltalake_reads_rows_and_frontiers(shard: Shard) -> None:
    """No code of ours on the reader's side."""
    table = DeltaTable(shard.location)

    names = ("tidemark.upper", "tidemark.since", "tidemark.term")
    assert [table.transaction_version(name) for name in names] == [3, 0, 1]
    updates = table.to_pyarrow_table(columns=["k", "v", "__diff"], filters=pc.field("__error").is_null())
    counts = updates.group_by(["k", "v"]).aggregate([("__diff", "sum")]).to_pylist()
    assert sorted((r["k"], r["v"], r["__diff_sum"]) for r in counts if r["__diff_sum"]) == EXPECTED


def test_duckdb_reads_the_contents_by_the_two_lines_of_the_documentation(shard: Shard) -> None:
    """Through Arrow: DuckDB's own delta extension is a download."""
    code = re.search(r"DuckDB:\n```python\n(.+?)\n```", DOCUMENT.read_text(), re.DOTALL)
    assert code is not None
    *assignments, query = code.group(1).splitlines()
    names = {"deltalake": deltalake, "duckdb": duckdb, "location": shard.location}

    exec("\n".join(assignments), names)
    assert sorted(eval(query, names).fetchall()) == EXPECTED


def test_reader_that_prunes_by_statistics_finds_nulls_and_skips_by_time(shard: Shard) -> None:
    """Statistics are kept of the time alone: a reader must not take those missing for "no NULLs here"."""
    table = DeltaTable(shard.location)

    for column in ("k", "v"):
        errs = table.to_pyarrow_table(filters=pc.field(column).is_null())
        assert errs.column("__error").to_pylist() == ["division by zero"]
    assert table.file_uris(file_pruning_predicate="__time > 3") == []
