"""Columns that come to tables which follow Debezium's transactions: the table and its successor are those of one state
upstream at each time, whoever dies."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.debezium.connector import Connector
from tests.kafka.debezium.test_kafka_transaction_histories import Killed, end_of_history, kill_after
from tests.kafka.debezium.test_kafka_transactions import NAMES, Shop, is_joined, is_settled, joined, soon
from tests.kafka.topics import Run, delete_records, no_secret, upper
from tests.storage.dying_appends import die_around
from tests.storage.ingestion_samples import description, oks
from tidemark_persist import open_shard
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.plan.successors import spec_name
from tidemark_protocol.types import STRING, Column
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka import source as kafka_source
from tidemark_replica.storage.kafka.inspect import tables_of
from tidemark_replica.storage.kafka.transactions import log

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
__all__ = ["soon"]


def grown(spec: KafkaSource, *names: str) -> KafkaSource:
    """With successors of these tables."""
    tables = {table.name: table for table in spec.tables}
    more = {"columns": (*spec.tables[0].columns, Column("vip", STRING)), "added": ("vip",), "successor": True}
    new = (replace(tables[name], name=f"{name}.2", **more) for name in names)
    return replace(spec, tables=(*spec.tables, *new))


def begun(run: Run) -> list[str]:
    """The successors that have begun."""
    return [table.name for table in run.spec.tables if table.added and upper(run.root, table.name)]


def check(shop: Shop, run: Run, at: int | None = None) -> None:
    """Each table has one state upstream, and each successor the same one with its further column."""
    settled = tuple(t.name for t in run.spec.tables if not t.added and is_settled(run, t.name))
    if at is None and settled:
        shop.check(run, settled)
    for name in begun(run):
        if is_settled(run, name) and is_settled(run, spec_name(name)):
            first: list[Any] = oks(run.root, spec_name(name), at)
            assert oks(run.root, name, at) == [(id, text, f"v{text}") for id, text in first]


def ticked(shop: Shop, run: Run, times: int = 1) -> None:
    for _ in range(times):
        run.tick()
        check(shop, run)


def until_last(shop: Shop, run: Run) -> None:
    """Ticks until all tables are as they are upstream."""
    for _ in range(400):
        ticked(shop, run)
        last = {name: sorted(rows.items()) for name, rows in shop.upstream.states[-1].items()}
        there = len(begun(run)) == sum(1 for table in run.spec.tables if table.added)
        if there and is_joined(run) and all(sorted(oks(run.root, name)) == last[name] for name in last):  # type: ignore[type-var]
            return
    raise AssertionError(f"{run.source.warning()} {dict(run.source.stop_reasons())} {run.source._bound}")


def test_a_successor_takes_whole_transactions(kafka: Broker, tmp_path: Path) -> None:
    """It begins with what the topic says, and from the same tick on each transaction is in both at one time. The first
    table goes, and the successor goes on."""
    shop = Shop(kafka)
    spec = shop.spec(max_bytes_per_tick=2_000)
    with Run(tmp_path, spec) as run:
        joined(run)
        for name in "abc":
            shop.commit(*(("orders", id, f"{name}{id}") for id in range(4)), ("items", 1, name), ("orders", 1, None))
        shop.connector.send_all()
        shop.until_last(run)
    both = grown(spec, "orders")
    shop.commit(("orders", 1, "open"), ("orders", 2, "open"), ("items", 2, "open"))
    shop.connector.send(2)
    with Run(tmp_path, both, 2) as run:
        run.until(lambda: begun(run))
        assert open_shard(f"{tmp_path}/orders.2").state().since == run.at
        assert run.source._cuts.members == {"orders", "items", "orders.2"}
        check(shop, run)
        ticked(shop, run, 3)
        assert shop.seen == 3
        shop.connector.send_all()
        until_last(shop, run)
        for id in range(4):
            shop.commit(("orders", id, f"d{id}"), ("items", id, "d"), ("orders", id + 1, None))
            while shop.connector.send(1):
                ticked(shop, run)
        until_last(shop, run)
    alone = replace(both, tables=both.tables[1:])
    with Run(tmp_path, alone, 3) as run:
        shop.commit(("orders", 7, "late"), ("items", 7, "late"))
        shop.connector.send_all()
        run.until(lambda: (7, "late", "vlate") in oks(tmp_path, "orders.2"))
        assert (7, "late") in oks(tmp_path, "items")


def test_a_transaction_comes_again_whose_time_is_later_than_the_last_one(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits passed one another, or a clock went back. The successor, which reads record by record, leaves the events
    out, as the table before left out their transaction."""
    origin = Connector._origin
    monkeypatch.setattr(Connector, "_origin", lambda *of: origin(*of) | {"ts_ms": 1000 - of[1]})
    shop = Shop(kafka, 1)
    spec = shop.spec("orders")
    with Run(tmp_path, spec) as run:
        joined(run)
        for name in "abc":
            shop.commit(("orders", 1, name))
        shop.connector.send_all()
        shop.until_last(run)
        shop.connector.restart(1)
        assert shop.connector.send(3) == 3  # the second one
        run.until(lambda: run.is_at_end(run.spec.tables[0]))
        shop.check(run)
    with Run(tmp_path, grown(spec, "orders"), 2) as run:
        run.until(lambda: begun(run) or run.source.stop_reasons())
        assert (begun(run), dict(run.source.stop_reasons())) == (["orders.2"], {})
        ticked(shop, run, 2)


def test_records_that_are_gone_refuse_the_edit(kafka: Broker, tmp_path: Path) -> None:
    shop = Shop(kafka, 1)
    spec = shop.spec()
    with Run(tmp_path, spec) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("orders", 1, "b"))
        shop.connector.send_all()
        shop.until_last(run)
    pinned = description(tmp_path, spec, tables_of(spec, no_secret))
    wanted = replace(spec, tables=grown(spec, "orders").tables[-1:])
    assert [table.name for table in tables_of(wanted, no_secret, pinned)] == ["orders.2"]
    delete_records(kafka, shop.connector.topic("orders"), 0, 1)
    with pytest.raises(SourceUnusable, match="begins at offset 1, and the table at 0"):
        tables_of(wanted, no_secret, pinned)
    with Run(tmp_path, grown(spec, "orders"), 2) as run:
        run.until(run.source.stop_reasons)
        assert run.source.stop_reasons()["orders.2"].startswith("RecordsGone: ")
        shop.commit(("orders", 2, "c"), ("items", 2, "c"))
        shop.connector.send_all()
        shop.some_join = True
        run.until(lambda: (2, "c") in oks(tmp_path, "items"))
        assert (2, "c") in oks(tmp_path, "orders")


def test_a_table_that_follows_no_transactions_is_added_beside_them(kafka: Broker, tmp_path: Path) -> None:
    """It is looked at alone; the others are pinned."""
    shop = Shop(kafka)
    spec = shop.spec()
    pinned = description(tmp_path, spec, tables_of(spec, no_secret))
    plain = KafkaTable("plain", shop.connector.topic("items"), "text", (Column("value", STRING),))
    assert [table.name for table in tables_of(replace(spec, tables=(plain,)), no_secret, pinned)] == ["plain"]


@pytest.mark.parametrize("moment", range(1, 12))
def test_death_around_each_append_of_the_begin(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """No time shows the successor without what the first table had, or another number of transactions."""
    shop = Shop(kafka)
    spec = shop.spec()
    with Run(tmp_path, spec) as run:
        joined(run)
        for name in "ab":
            shop.commit(("orders", 1, name), ("orders", 2, name), ("items", 1, name))
        shop.connector.send_all()
        shop.until_last(run)
    both = grown(spec, "orders")
    shop.commit(("orders", 1, "c"), ("orders", 2, None), ("items", 1, "c"))
    shop.connector.send_all()
    with Run(tmp_path, both, 2) as run, monkeypatch.context() as death:
        die_around(death, moment)
        with pytest.raises(KeyboardInterrupt):
            run.tick(4)
    with Run(tmp_path, both, 3) as run:
        until_last(shop, run)
        since, end = open_shard(f"{tmp_path}/orders.2").state().since, upper(tmp_path, "orders.2")
        assert 0 < since < end
        for at in {since, end - 1}:
            check(shop, run, at)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 10))])
def test_oracle_random_transactions_with_columns(
    kafka: Broker, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connector and the ingester die and begin again, memory is small, and columns come in between."""
    draw = random.Random(seed)
    monkeypatch.setattr(log, "BEFORE_RECORDS", 200)
    if draw.random() < 0.5:
        monkeypatch.setattr(kafka_source, "AHEAD_BYTES", 3_000)
    shop = Shop(kafka, draw.randrange(1, 4), schemas=draw.random() < 0.3)
    spec, term = shop.spec(max_bytes_per_tick=draw.choice([2_000, 1 << 20])), 1
    run = Run(tmp_path, spec)
    joined(run)
    left = list(draw.sample(NAMES, 2))
    for _ in range(16):
        for _ in range(draw.randrange(4)):
            shop.upstream.commit_random(draw)
        shop.connector.queue(draw.randrange(1, 40))
        shop.connector.deliver_some(draw)
        if draw.random() < 0.25:
            shop.connector.restart_somewhere(draw)
        if draw.random() < 0.25:
            kill_after(run, draw.randrange(5))
        try:
            ticked(shop, run, draw.randrange(3))
            died = draw.random() < 0.2
        except Killed:
            died = True
        if died:
            run.close()
            if left and draw.random() < 0.6:
                spec = grown(spec, left.pop())
            term += 1
            run = Run(tmp_path, spec, term)
            check(shop, run)
    run.close()
    run = Run(tmp_path, grown(spec, *left), term + 1)
    end_of_history(shop)
    until_last(shop, run)
    run.close()
