"""A PostgreSQL database is followed exactly: at every tick its tables are as they were between transactions."""

from __future__ import annotations

import random
from pathlib import Path
from time import sleep

import pytest

from tests.dialects.postgres import Postgres
from tests.postgres.databases import (
    KEYED_SCHEMA,
    SCHEMA,
    History,
    KeyedHistory,
    check,
    create_database,
    drop_slots,
    ingester,
    source_of,
    spec_of,
    tick,
)
from tests.storage.dying_appends import die_after
from tidemark_replica.storage.errors import SourceNotReady
from tidemark_replica.storage.postgres import tick as tick_module

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("seed", range(6))
def test_oracle_random_histories_with_deaths(
    server: Postgres, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interleaved transactions; an ingester dies after random appends and another goes on. Changes name rows by all of
    their values, or by a key."""
    kind, schema = (KeyedHistory, KEYED_SCHEMA) if seed % 2 else (History, SCHEMA)
    create_database(server, f"history{seed}", schema)
    moments, history = random.Random(seed), kind(server, f"history{seed}", seed)
    for _ in range(10):
        history.step()
    spec = spec_of(server, f"history{seed}")
    until_death = die_after(monkeypatch, moments.randrange(1, 12))
    monkeypatch.setattr(tick_module, "FLUSH_BYTES", moments.choice([2_000, 32 << 20]))
    one = ingester(tmp_path, spec)
    one.recover()
    with history.going_on():
        for time in range(1000, 3000, 100):
            history.allow(20)
            try:
                tick(one, time)
            except (KeyboardInterrupt, SourceNotReady):  # a TRUNCATE came between the slot and its snapshot
                source_of(one).close()
                one = ingester(tmp_path, spec)
                one.recover()
            if until_death.left <= 0:
                until_death.left = moments.randrange(1, 16)
            history.allow(20)
            sleep(moments.random() * 0.1)
    until_death.left = 1_000_000
    tick(one, 9000)
    tick(one, 9100)
    assert not source_of(one).stop_reasons()
    source_of(one).close()
    check(tmp_path, history.states)
    drop_slots(server)
