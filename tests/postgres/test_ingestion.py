"""A PostgreSQL database is followed exactly: at every tick its tables are as they were between transactions."""

from __future__ import annotations

import random
from pathlib import Path
from time import sleep

import pytest

from tests.dialects.postgres import Postgres
from tests.postgres.databases import (
    History,
    check,
    create_database,
    drop_slots,
    ingester,
    source_of,
    spec_of,
    tick,
)
from tidemark_replica.storage.errors import SourceNotReady
from tidemark_replica.storage.ingester import Ingester

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("seed", range(4))
def test_oracle_random_histories_with_deaths(
    server: Postgres, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interleaved transactions; an ingester dies after random appends and another goes on."""
    create_database(server, f"history{seed}")
    moments, history = random.Random(seed), History(server, f"history{seed}", seed)
    for _ in range(10):
        history.step()
    spec = spec_of(server, f"history{seed}")
    append, alive = Ingester._append, [moments.randrange(1, 12)]

    def append_then_die(self: Ingester, *args: object) -> None:
        append(self, *args)  # type: ignore[arg-type]
        alive[0] -= 1
        if alive[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(Ingester, "_append", append_then_die)
    one = ingester(tmp_path, spec)
    one.recover()
    with history.going_on():
        for time in range(1000, 3000, 100):
            try:
                tick(one, time)
            except (KeyboardInterrupt, SourceNotReady):  # a TRUNCATE came between the slot and its snapshot
                source_of(one).close()
                one = ingester(tmp_path, spec)
                one.recover()
            if alive[0] <= 0:
                alive[0] = moments.randrange(1, 16)
            sleep(moments.random() * 0.1)
    alive[0] = 1_000_000
    tick(one, 9000)
    tick(one, 9100)
    assert not source_of(one).stopped()
    source_of(one).close()
    check(tmp_path, history.states)
    drop_slots(server)
