"""A standby is promoted, and the source's address leads to it: another timeline, perhaps without the last transactions.

The tables go on by a difference at one time (`onGap: resnapshot`), or keep their rows (`stop`)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.dialects.postgres import Postgres, standby
from tests.postgres.databases import (
    KEYED_SCHEMA,
    LOGICAL,
    SCHEMA,
    Database,
    History,
    KeyedHistory,
    check,
    create_database,
    ingested_rows,
    ingester,
    server_with_replication,
    source_of,
    spec_of,
    tick,
    tick_until_followed,
)
from tests.postgres.test_stops import A, B, upper
from tests.waiting import until
from tidemark_protocol.plan.ingestion import PostgresSource
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.postgres import source as source_module
from tidemark_replica.storage.postgres.pgoutput import parse_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.broad]


@dataclass
class Pair:
    """A primary and its standby. `address`: a folder for sockets that leads to the one, and later to the other."""

    primary: Postgres
    standby: Postgres
    address: Path

    def spec(self, database: str, *tables: Any, **more: Any) -> PostgresSource:
        return replace(spec_of(self.primary, database, *tables, **more), host=str(self.address))

    def wait_for_standby(self) -> None:
        """Wait until the standby has all that was committed so far."""
        (lsn,) = self.primary.rows("select pg_current_wal_flush_lsn()")[0]
        until(lambda: self.standby.rows(f"select pg_last_wal_replay_lsn() >= '{lsn}'") == [("t",)])

    def cut_off(self) -> None:
        """The standby receives nothing any more."""
        self.standby.rows("alter system set primary_conninfo = ''")
        self.standby.rows("select pg_reload_conf()")
        receiving = "select count(*) from pg_stat_replication where application_name = 'walreceiver'"
        until(lambda: self.primary.rows(receiving) == [("0",)])

    def fail_over(self) -> None:
        """The primary dies, and the address leads to the standby, which is promoted."""
        self.primary.kill()
        self.lead_to_promoted()

    def lead_to_promoted(self) -> None:
        self.standby.promote()
        self.address.unlink()
        self.address.symlink_to(self.standby.folder)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with server_with_replication() as primary, standby(primary, *LOGICAL) as other:
        address = primary.folder / "address"
        address.symlink_to(primary.folder)
        yield Pair(primary, other, address)


@contextmanager
def ingesting(root: Path, spec: PostgresSource) -> Iterator[Ingester]:
    one = ingester(root, spec)
    try:
        one.recover()
        yield one
    finally:
        source_of(one).close()


def ticked(root: Path, spec: PostgresSource, one: Ingester | None, time: int) -> Ingester | None:
    """The ingester after the tick; None where it failed: then the next one goes on, as another process would."""
    if one is None:
        one = ingester(root, spec)
        one.recover()
    try:
        tick(one, time)
    except IngestionError:
        source_of(one).close()
        return None
    return one


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(2, 8)))])
def test_oracle_a_promoted_standby_is_gone_on_with(
    pair: Pair, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each binding has a state of the primary, and later ones of the promoted server: the transactions that it never
    got are taken back at the one time at which the others come, and no table is empty meanwhile."""
    monkeypatch.setattr(source_module, "RETRY_SECONDS", 0.0)
    kind, schema = (KeyedHistory, KEYED_SCHEMA) if seed % 2 else (History, SCHEMA)
    create_database(pair.primary, "shop", schema)
    draw, before = random.Random(seed), kind(pair.primary, "shop", seed)
    spec = pair.spec("shop", on_gap="resnapshot")
    one, times = None, iter(range(1000, 1 << 30, 100))
    with before.going_on():
        for _ in range(12):
            one = ticked(tmp_path, spec, one, next(times))
            sleep(draw.random() * 0.1)
    pair.wait_for_standby()
    kept = len(before.states)
    if seed % 3 != 2:
        pair.cut_off()
        before.reconnect()
        with before.going_on():
            for _ in range(8):
                one = ticked(tmp_path, spec, one, next(times))
                sleep(draw.random() * 0.1)
        one = ticked(tmp_path, spec, one, next(times))
    pair.fail_over()
    after = kind(pair.standby, "shop", 100 + seed)
    assert after.states[0] == before.states[kept - 1]
    with after.going_on():
        for _ in range(12):
            one = ticked(tmp_path, spec, one, next(times))
            sleep(draw.random() * 0.1)
    while one is None:
        one = ticked(tmp_path, spec, one, next(times))
    try:
        tick_until_followed(one, next(times))
    finally:
        source_of(one).close()
    check(tmp_path, [*before.states, *after.states])


def test_tables_stop_where_a_standby_was_promoted(pair: Pair, tmp_path: Path) -> None:
    """Their rows stay, also those of transactions that the promoted server never got; a later process knows it, too."""
    create_database(pair.primary, "shop")
    primary, promoted = Database(pair.primary, "shop"), Database(pair.standby, "shop")
    primary.run("insert into a values (1, 'x')", "insert into b values (1)")
    spec = pair.spec("shop", A, B)
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        pair.wait_for_standby()
        pair.cut_off()
        primary.run("insert into a values (2, 'lost')")
        until_row(one, tmp_path, 2)
        stopped_at = upper(tmp_path, "a")
        pair.fail_over()
        promoted.run("insert into a values (3, 'new')")
        with pytest.raises(IngestionError):
            tick(one, 500_000)
    for time in (600_000, 700_000):
        with ingesting(tmp_path, spec) as one:
            tick(one, time)
            assert {name: text.split(":")[0] for name, text in source_of(one).stop_reasons().items()} == {
                "a": "UpstreamReplaced",
                "b": "UpstreamReplaced",
            }
            assert "is on timeline 2 and was on 1" in source_of(one).stop_reasons()["a"]
            tick(one, time + 100)
    assert upper(tmp_path, "a") == stopped_at
    assert sorted(ingested_rows(tmp_path, "a", stopped_at - 1)) == [(1, "x"), (2, "lost")]


def until_row(one: Ingester, root: Path, id: int) -> None:
    """Ticks until the row of `a` is there."""
    for time in range(1200, 400_000, 100):
        tick(one, time)
        if id in {row[0] for row in ingested_rows(root, "a", upper(root, "a") - 1)}:
            return
        sleep(0.02)
    raise AssertionError(f"row {id} is not there")


def test_a_slot_of_the_name_on_the_promoted_server_does_not_help(pair: Pair, tmp_path: Path) -> None:
    """A failover slot of PostgreSQL 17 would be there: the timeline is another one, so the difference is taken, and
    the slot is made anew."""
    create_database(pair.primary, "shop")
    primary, promoted = Database(pair.primary, "shop"), Database(pair.standby, "shop")
    primary.run("insert into a values (1, 'x'), (2, 'y')")
    spec = pair.spec("shop", A, on_gap="resnapshot")
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        slot = source_of(one)._slot
    pair.wait_for_standby()
    pair.fail_over()
    promoted.run("delete from a where id = 1")
    promoted.run(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    made_at = promoted.value(f"select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '{slot}'")
    promoted.run("insert into a values (3, 'z')")
    with ingesting(tmp_path, spec) as one:
        tick(one, 2000)
        assert not source_of(one).stop_reasons()
    assert sorted(ingested_rows(tmp_path, "a", 1999)) == [(1, "x"), (2, "y")]
    assert sorted(ingested_rows(tmp_path, "a", 2000)) == [(2, "y"), (3, "z")]
    now_at = promoted.value(f"select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '{slot}'")
    assert parse_lsn(now_at) > parse_lsn(made_at)


def test_the_catalogue_of_another_server_explains_no_changes(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old primary is alive, and its stream goes on, while the address leads to the promoted server, whose
    catalogue does not know that the rows read as others."""
    create_database(pair.primary, "shop")
    primary = Database(pair.primary, "shop")
    primary.run("insert into a values (1, 'x')")
    spec = pair.spec("shop", A)
    monkeypatch.setattr(source_module, "LOOK_SECONDS", 3600.0)
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        source_of(one)._looked_at = monotonic()
        tick(one, 1100)
        assert source_of(one)._stream is not None
        assert source_of(one)._catalogue is None
        pair.wait_for_standby()
        pair.cut_off()
        pair.lead_to_promoted()
        primary.run("alter table a alter id type int using id + 100", "insert into a values (2, 'y')")
        with pytest.raises(IngestionError, match="another server answers"):
            until_row(one, tmp_path, 2)
    with ingesting(tmp_path, spec) as one:
        tick(one, 500_000)
        assert source_of(one).stop_reasons()["a"].startswith("UpstreamReplaced")
    assert sorted(ingested_rows(tmp_path, "a", upper(tmp_path, "a") - 1)) == [(1, "x")]


@pytest.mark.parametrize("on_gap", ["stop", "resnapshot"])
def test_an_address_that_leads_to_a_standby_for_a_while_stops_nothing(pair: Pair, tmp_path: Path, on_gap: str) -> None:
    """The source waits: the standby has no slot, and nothing was lost."""
    create_database(pair.primary, "shop")
    primary = Database(pair.primary, "shop")
    primary.run("insert into a values (1, 'x')")
    spec = pair.spec("shop", A, on_gap=on_gap)
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
    pair.wait_for_standby()
    pair.address.unlink()
    pair.address.symlink_to(pair.standby.folder)
    with ingesting(tmp_path, spec) as one, pytest.raises(IngestionError, match="is a standby"):
        tick(one, 1100)
    pair.address.unlink()
    pair.address.symlink_to(pair.primary.folder)
    primary.run("insert into a values (2, 'y')")
    with ingesting(tmp_path, spec) as one:
        until_row(one, tmp_path, 2)
        assert not source_of(one).stop_reasons()
    assert sorted(ingested_rows(tmp_path, "a", upper(tmp_path, "a") - 1)) == [(1, "x"), (2, "y")]
