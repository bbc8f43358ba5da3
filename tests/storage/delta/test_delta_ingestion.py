"""A Delta table is followed exactly: at every tick the table's contents are those of the bound version."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.storage.delta.delta_tables import Upstream, bound_versions, check, ingester, spec_of, tick
from tests.storage.dying_appends import die_after
from tidemark_protocol.plan.ingestion import DeltaTable
from tidemark_replica.storage.delta import changes, reading


@pytest.mark.parametrize("seed", range(12))
def test_oracle_random_histories_with_deaths(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables, one with the change data feed; an ingester dies at random appends and another goes on. In half of the
    histories, files that may cancel are read twice, as those of large tables are."""
    if seed % 4 > 1:
        monkeypatch.setattr(changes, "TWICE_BYTES", -1)
        monkeypatch.setattr(reading, "BATCH_ROWS", seed)
    moments = random.Random(seed)
    up = [
        Upstream(tmp_path / "up" / "a", seed, feed=seed % 2 == 0, partitioned=seed % 3 == 0),
        Upstream(tmp_path / "up" / "b", seed + 100, feed=seed % 2 == 1, partitioned=seed % 3 == 1),
    ]
    spec = spec_of(*(DeltaTable(name, table.path) for name, table in zip("ab", up, strict=True)))
    until_death = die_after(monkeypatch, 99)
    one, done = ingester(tmp_path, spec), []
    one.recover()
    for time in range(1000, 3000, 100):
        for _ in range(moments.randrange(4)):
            done.append(moments.choice(up).step())
        try:
            tick(one, time)
        except KeyboardInterrupt:
            one = ingester(tmp_path, spec)
            one.recover()
        if until_death.left <= 0:
            until_death.left = moments.randrange(1, 12)
    one.recover()

    tick(one, 9000)
    for name, table in zip("ab", up, strict=True):
        assert max(bound_versions(tmp_path, name).values()) == table.table.version(), done
    check(tmp_path, spec)
