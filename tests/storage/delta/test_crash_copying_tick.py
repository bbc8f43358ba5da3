"""A process dies at each step of the tick in which a Delta table is copied: the first one, and one after a gap."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from deltalake import DeltaTable as Table

from tests.storage.delta.delta_tables import (
    Upstream,
    bound_versions,
    check,
    delta_rows,
    ingested_rows,
    ingester,
    spec_of,
    tick,
)
from tests.storage.dying_steps import dies
from tidemark_protocol.plan.ingestion import DeltaTable

PARTS = 3
"""Each takes every third step, and the first ones are in all runs."""
BY_PART = [pytest.param(0, 30), *(pytest.param(part, PARTS, marks=pytest.mark.slow) for part in range(PARTS))]


@pytest.mark.parametrize(("first", "every"), BY_PART)
def test_crash_at_each_step_of_the_first_copy(tmp_path: Path, first: int, every: int) -> None:
    """Upstream goes on before another process does. At each binding the contents are those of the bound version."""
    died = 0
    for step in count(first, every):
        root = tmp_path / f"{step}"
        root.mkdir()
        up = [Upstream(root / "up" / name, step + n) for n, name in enumerate("ab")]
        for table in up:
            table.append()
        spec = spec_of(*(DeltaTable(name, table.path) for name, table in zip("ab", up, strict=True)))
        if not dies("delta", root, spec, step):
            break
        died += 1
        for table in up:
            table.step()
        one = ingester(root, spec)
        one.recover()
        tick(one, 5000)
        check(root, spec)
        assert [max(bound_versions(root, n).values()) for n in "ab"] == [table.table.version() for table in up]
    assert died >= 20 // every


@pytest.mark.parametrize(("first", "every"), BY_PART)
def test_crash_at_each_step_of_a_copy_behind_a_gap(tmp_path: Path, first: int, every: int) -> None:
    """The table has its contents of before until it has the new ones, at one time."""
    died = 0
    for step in count(first, every):
        root = tmp_path / f"{step}"
        root.mkdir()
        up = Upstream(root / "up", step)
        spec = spec_of(DeltaTable("t", up.path, on_gap="resnapshot"))
        one = ingester(root, spec)
        one.recover()
        tick(one, 100)
        before = ingested_rows(root, "t", 100)
        for _ in range(3):
            up.append()
        up.table.delete("id % 2 = 0")
        up.table.update({"amount": "7.0"}, predicate="id % 3 = 0")
        up.table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        died_here = dies("delta", root, spec, step)
        for time in (5000, 5100, 5200):
            one = ingester(root, spec)
            one.recover()
            tick(one, time)
        names = tuple(column.name for column in spec.tables[0].columns or ())
        after = delta_rows(up.path, Table(up.path).version(), names)
        found = [ingested_rows(root, "t", time) for time in (*bound_versions(root, "t"), 5200)]
        assert [rows for rows in found if rows not in (before, after)] == []
        assert found[-1] == after != before
        if not died_here:
            break
        died += 1
    assert died >= 20 // every
