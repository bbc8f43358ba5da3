"""Debezium's transactions: at each time the tables are what they were after a whole number of transactions upstream."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.debezium.connector import Change, Connector, Rows, Upstream, avro_table
from tests.kafka.topics import Run, add_partitions, delete_records, delete_topic, new_topic, produce, spec_of
from tests.schema_registry.registry import Registry
from tests.storage.ingestion_samples import errors, oks
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.storage.kafka import followed_topic, waits
from tidemark_replica.storage.kafka import source as kafka_source
from tidemark_replica.storage.kafka.transactions import cuts, log, read_ahead
from tidemark_replica.storage.kafka.transactions.metadata import NoSequence, TransactionMark, mark_of

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
NAMES = ("orders", "items")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "WARN_SECONDS", 0.0)
    monkeypatch.setattr(log, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(followed_topic, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(waits, "PAUSE_SECONDS", 0.0)


class Shop:
    """A database, its connector and the topics. `seen`: after how many transactions the tables were read last.
    `some_join`: tables that have not read yet what was there when they joined are no state upstream."""

    def __init__(self, kafka: Broker, partitions: int = 2, names: tuple[str, ...] = NAMES, **connector: Any) -> None:
        self.kafka, self.prefix = kafka, f"shop-{uuid.uuid4().hex[:8]}"
        self.registry: Registry | None = connector.get("registry")
        self.upstream = Upstream(names)
        self.connector = Connector(kafka, self.prefix, self.upstream, partitions, **connector)
        for name in names:
            new_topic(kafka, partitions, self.connector.topic(name))
        new_topic(kafka, 1, self.connector.transaction_topic)
        self.seen, self.some_join = 0, False

    def spec(self, *names: str, **options: Any) -> KafkaSource:
        tables = (self.table(name) for name in names or self.upstream.tables)
        given = {"transactions": self.connector.transaction_topic}
        given |= {"registry": self.registry.url} if self.registry is not None else {}
        return spec_of(self.kafka, *tables, **given | options)

    def table(self, name: str, **options: Any) -> KafkaTable:
        if self.registry is not None:
            return replace(avro_table(name, self.connector.topic(name)), **options)
        keyed: dict[str, Any] = {"envelope": "debezium", "key_format": "json", "key_columns": (Column("id", BIGINT),)}
        return KafkaTable(name, self.connector.topic(name), "json", (Column("name", STRING),), **(keyed | options))

    def commit(self, *changes: tuple[str, int, str | None]) -> None:
        self.upstream.commit(*(Change(*each) for each in changes))

    def check(self, run: Run, names: tuple[str, ...] = ()) -> None:
        """The tables are those of one state upstream, and not an older one than before."""
        names = names or tuple(
            table.name for table in run.spec.tables if not self.some_join or is_settled(run, table.name)
        )
        now = contents(run.root, names)
        found = [at for at, rows in enumerate(self.upstream.states) if shown(rows, names) == now and at >= self.seen]
        assert found, f"after {self.seen} transactions or more there was never {now}"
        self.seen = found[0]
        assert not any(errors(run.root, name) for name in names)

    def tick(self, run: Run, times: int = 1) -> None:
        for _ in range(times):
            run.tick()
            self.check(run)

    def until_last(self, run: Run) -> None:
        """Ticks until the tables are as they are upstream; at each time they are as they were there."""
        names = tuple(table.name for table in run.spec.tables)
        for _ in range(400):
            if contents(run.root, names) == shown(self.upstream.states[-1], names) and is_joined(run):
                return
            self.tick(run)
        raise AssertionError(f"{run.source.warning()} {dict(run.source.stop_reasons())}: {contents(run.root, names)}")


def contents(root: Path, names: tuple[str, ...]) -> Any:
    return {name: oks(root, name) for name in names}


def shown(rows: Rows, names: tuple[str, ...]) -> Any:
    return {name: sorted(rows[name].items(), key=repr) for name in names}


def is_joined(run: Run) -> bool:
    return bool(run.source._cuts.members >= {table.name for table in run.spec.tables})


def is_settled(run: Run, name: str) -> bool:
    """Whether the table takes its part in whole transactions, and has read what was there when it joined."""
    source = run.source
    if name in source.stop_reasons() or name not in source._cuts.members:
        return False
    bound = source._bound[name]
    return all(bound.offsets.get(p, 0) >= end for p, end in bound.history.items())


def joined(run: Run) -> None:
    run.until(lambda: is_joined(run))


def test_a_transaction_is_at_one_time(kafka: Broker, tmp_path: Path) -> None:
    """Across partitions and tables, and only after its end."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("orders", 2, "b"), ("items", 1, "c"), ("orders", 1, None))
        for _ in range(6):
            assert shop.connector.send(1)
            shop.tick(run, 2)
            assert shop.seen == 0
        assert shop.connector.send(1) == 1  # its end
        shop.until_last(run)
        assert oks(tmp_path, "orders") == [(2, "b")]
        shop.commit(("items", 3, "d"))
        shop.connector.send_all()
        shop.until_last(run)
    assert shop.seen == 2


def test_what_was_there_before(kafka: Broker, tmp_path: Path) -> None:
    """A snapshot, transactions of before, and one that is open: the tables begin after the last one that has ended."""
    shop = Shop(kafka)
    for id in range(3):
        snapshot = {"op": "r", "after": {"id": id, "name": "s"}, "source": {"snapshot": "true"}, "transaction": None}
        produce(kafka, shop.connector.topic("orders"), snapshot, partition=id % 2, key=json.dumps({"id": id}).encode())
    shop.upstream.states = [{"orders": {0: "s", 1: "s", 2: "s"}, "items": {}}]
    for name in "ab":
        shop.commit(("orders", 1, name), ("items", 2, name), ("orders", 2, None))
    shop.commit(("orders", 2, "open"), ("items", 1, "open"))
    shop.connector.send(15)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        run.until(lambda: contents(tmp_path, NAMES) == shown(shop.upstream.states[2], NAMES))
        shop.seen = 2
        shop.tick(run, 5)
        assert shop.seen == 2
        shop.connector.send_all()
        shop.until_last(run)


@pytest.mark.parametrize(("change", "goes_on"), [(0, False), (2, False), (3, True), (6, False)])
def test_a_connector_that_begins_again_in_the_middle(kafka: Broker, tmp_path: Path, change: int, goes_on: bool) -> None:
    """It writes BEGIN again, and may count from there: the transaction waits for later events in each partition."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit(*(("orders", n, "a") for n in range(5)), ("items", 1, "a"))
        shop.connector.send(4 if change < 4 else 7)
        shop.connector.restart(0, change, goes_on)
        while shop.connector.send(1):
            shop.tick(run)
        run.until(lambda: run.source.warning().startswith("TransactionUndecided: transaction 700 of topic"))
        shop.tick(run, 3)
        assert shop.seen == 0
        shop.commit(("orders", 0, "b"), ("items", 0, "b"), ("items", 1, "b"))
        shop.connector.send_all()
        shop.tick(run, 3)
        assert shop.seen == 0  # one partition of orders has nothing of it
    with Run(tmp_path, shop.spec(), term=2) as run:
        shop.tick(run, 3)
        assert shop.seen == 0
        shop.commit(("orders", 1, "c"))
        shop.connector.send_all()
        shop.until_last(run)
        assert not run.source.stop_reasons()


def test_a_connector_that_begins_again_before(kafka: Broker, tmp_path: Path) -> None:
    """Transactions that are bound come again: they are left out. One that was open comes from its begin: it counts."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        for name in "ab":
            shop.commit(("orders", 1, name), ("orders", 2, name), ("items", 1, name), ("orders", 3, name))
        shop.connector.send_all()
        shop.until_last(run)
        shop.commit(("orders", 1, "c"), ("orders", 2, None), ("items", 1, "c"), ("orders", 3, "c"))
        shop.connector.send(2)
        shop.connector.restart(0)
        while shop.connector.send(1):
            shop.tick(run)
        shop.until_last(run)


def test_transactions_of_other_tables_do_not_count(kafka: Broker, tmp_path: Path) -> None:
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec("items")) as run:
        joined(run)
        shop.commit(("orders", 1, "a"))
        shop.commit(("orders", 1, "b"), ("items", 2, "b"))
        shop.connector.send_all()
        shop.until_last(run)
        assert oks(tmp_path, "items") == [(2, "b")]


def test_a_transaction_larger_than_memory(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records are dropped and read again."""
    monkeypatch.setattr(kafka_source, "AHEAD_BYTES", 20_000)
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec(max_bytes_per_tick=8_000)) as run:
        joined(run)
        shop.commit(*(("orders", n, "x" * 50) for n in range(400)), ("items", 1, "a"))
        shop.commit(*(("orders", n, None) for n in range(0, 400, 2)))
        shop.connector.send(300)
        shop.tick(run, 8)
        assert shop.seen == 0
        shop.connector.send_all()
        dropped = set[bool]()
        monkeypatch.setattr(
            read_ahead.ReadAhead,
            "is_over",
            property(lambda s: s.__dict__.get("over", False), lambda s, v: (dropped.add(v), s.__dict__.update(over=v))),
            raising=False,
        )
        shop.until_last(run)
        assert True in dropped


def test_a_late_table_joins(kafka: Broker, tmp_path: Path) -> None:
    """Transactions of before it came are taken as they come; then it takes its part in whole ones."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec("orders")) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("items", 1, "a"))
        shop.connector.send_all()
        shop.until_last(run)
    shop.commit(("orders", 1, "b"), ("items", 1, "b"), ("items", 2, "b"))
    shop.connector.send(3)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        run.until(lambda: contents(tmp_path, NAMES) == shown(shop.upstream.states[1], NAMES))
        shop.tick(run, 3)
        assert contents(tmp_path, NAMES) == shown(shop.upstream.states[1], NAMES)
        shop.connector.send_all()
        shop.until_last(run)


def test_a_table_that_was_away_joins_anew(kafka: Broker, tmp_path: Path) -> None:
    """Transactions that were bound without it are taken as they come: none is left out as one that came again."""
    shop = Shop(kafka)
    for names in (NAMES, NAMES[:1], NAMES):
        with Run(tmp_path, shop.spec(*names)) as run:
            joined(run)
            shop.commit(*((name, len(shop.upstream.states), "a") for name in NAMES))
            shop.connector.send_all()
            run.until(lambda: contents(tmp_path, names) == shown(shop.upstream.states[-1], names))  # noqa: B023


def test_a_source_says_what_it_waits_for(kafka: Broker, tmp_path: Path) -> None:
    shop = Shop(kafka)
    topic = shop.connector.transaction_topic
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("items", 1, "a"))
        shop.connector.send(3)
        wait_for(run, f"TransactionPending: transaction 700 of topic {topic}: its END has not come")
        produce(kafka, topic, end("700:10002", orders=1, items=3))
        wait_for(run, f"TransactionPending: transaction 700 of topic {topic}: table items has 1 of its 3 events; part")
        assert {name: report.behind for name, report in run.source.progress().items()} == {"orders": 1, "items": 1}
        shop.check(run)
        assert shop.seen == 0


def test_an_empty_transaction(kafka: Broker, tmp_path: Path) -> None:
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit()
        shop.commit(("orders", 1, "a"))
        shop.connector.send_all()
        shop.until_last(run)


def test_events_of_no_transaction_are_taken_as_they_come(kafka: Broker, tmp_path: Path) -> None:
    """The events are of a snapshot beside a transaction that is open, in another partition."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("orders", 3, "a"))
        shop.connector.send(2)
        snapshot = {"op": "r", "after": {"id": 2, "name": "s"}, "source": {"snapshot": "true"}, "transaction": None}
        produce(kafka, shop.connector.topic("orders"), snapshot, partition=0, key=b'{"id": 2}')
        run.until(lambda: oks(tmp_path, "orders") == [(2, "s")])
        shop.connector.send_all()
        run.until(lambda: oks(tmp_path, "orders") == [(1, "a"), (2, "s"), (3, "a")])


@pytest.mark.parametrize("on_gap", ["stop", "skip"])
def test_events_that_do_not_come(kafka: Broker, tmp_path: Path, on_gap: str) -> None:
    """A transformation of Kafka Connect leaves them out, for example."""
    shop = Shop(kafka)
    tables = shop.table("orders"), shop.table("items", on_gap=on_gap)
    with Run(tmp_path, spec_of(kafka, *tables, transactions=shop.connector.transaction_topic)) as run:
        joined(run)
        shop.connector.left_out = {("items", 5)}
        shop.commit(("orders", 1, "a"), ("items", 1, "a"), ("items", 5, "a"))
        shop.connector.send_all()
        wait_for(run, "TransactionPending")
        assert contents(tmp_path, NAMES) == {"orders": [], "items": []}
        shop.commit(("items", 1, "b"), ("items", 2, "b"))
        shop.connector.send_all()
        if on_gap == "stop":
            wait_for(run, "TransactionIncomplete")
            assert contents(tmp_path, NAMES) == {"orders": [], "items": []}
        else:
            run.until(lambda: len(oks(tmp_path, "items")) == 2)
            assert contents(tmp_path, NAMES) == {"orders": [(1, "a")], "items": [(1, "b"), (2, "b")]}
            assert "GapSkipped: table items: gaps passed over: 1" in run.source.warning()


def test_a_source_that_waits_goes_on_with_onGap_edited(kafka: Broker, tmp_path: Path) -> None:
    """The ingester begins again with the edited table, from its bindings: two transactions with lost events are passed
    over without them, and with nothing else. Once it is edited back, the next one holds again."""
    shop, lost = Shop(kafka), "TransactionIncomplete: transaction"
    items = shop.table("items")

    def spec(on_gap: str) -> KafkaSource:
        topic = shop.connector.transaction_topic
        return spec_of(kafka, shop.table("orders"), replace(items, on_gap=on_gap), transactions=topic)

    def commit(name: str) -> None:
        shop.commit(("orders", 1, name), ("items", 1, name), ("items", 5, name))

    shop.connector.left_out = {("items", 5)}
    with Run(tmp_path, spec("stop")) as run:
        joined(run)
        for name in ("a", "b"):
            commit(name)
        shop.commit(("items", 1, "c"), ("items", 2, "c"))
        shop.connector.send_all()
        wait_for(run, f"{lost} 700 of topic")
        assert "set onGap: skip of table items" in run.source.warning()
        assert contents(tmp_path, NAMES) == {"orders": [], "items": []}
    with Run(tmp_path, spec("skip")) as run:
        run.until(lambda: len(oks(tmp_path, "items")) == 2)
        assert contents(tmp_path, NAMES) == {"orders": [(1, "b")], "items": [(1, "c"), (2, "c")]}
        warning = "GapSkipped: table items: gaps passed over: 2; the last one: transaction 701: table items has 1 of"
        assert run.source.warning().startswith(warning)
    with Run(tmp_path, spec("stop")) as run:
        assert run.source.counters()["gaps/items"] == 2
        commit("d")
        shop.commit(("items", 1, "e"), ("items", 2, "e"))
        shop.connector.send_all()
        wait_for(run, f"{lost} 703 of topic")
        run.tick(3)
        assert contents(tmp_path, NAMES) == {"orders": [(1, "b")], "items": [(1, "c"), (2, "c")]}
    with Run(tmp_path, spec("skip")) as run:
        run.until(lambda: (2, "e") in oks(tmp_path, "items"))
        assert contents(tmp_path, NAMES) == {"orders": [(1, "d")], "items": [(1, "e"), (2, "e")]}
        assert run.source.counters()["gaps/items"] == 3


def end(id: str, **counts: int) -> Any:
    each = [{"data_collection": f"public.{name}", "event_count": count} for name, count in counts.items()]
    return {"status": "END", "id": id, "event_count": sum(counts.values()), "data_collections": each}


def test_a_topic_of_transactions_that_cannot_be_read(kafka: Broker, tmp_path: Path) -> None:
    """It is missing at first: the tables wait. Then it has two partitions, or is another one, or its next record is
    gone: nothing more is bound."""
    shop = Shop(kafka)
    topic = shop.connector.transaction_topic
    delete_topic(kafka, topic)
    with Run(tmp_path, shop.spec()) as run:
        wait_for(run, "TransactionsUnreadable: TopicMissing")
        assert set(run.source.unbound_tables()) == set(NAMES)
        new_topic(kafka, 1, topic)
        joined(run)
        assert run.source.warning() == ""
        shop.commit(("orders", 1, "a"))
        shop.connector.send_all()
        shop.until_last(run)
    for id in range(5):
        produce(kafka, topic, end(f"{id}:1000{id}"))
    delete_records(kafka, topic, 0, 4)
    shop.commit(("orders", 1, "b"))
    shop.connector.send_all()
    with Run(tmp_path, shop.spec()) as run:
        wait_for(run, "TransactionsUnreadable: OffsetGone")
        assert oks(tmp_path, "orders") == [(1, "a")]
    add_partitions(kafka, topic, 2)
    with Run(tmp_path, shop.spec()) as run:
        wait_for(run, "TransactionsUnreadable: Partitions")
    delete_topic(kafka, topic)
    new_topic(kafka, 1, topic)
    with Run(tmp_path, shop.spec()) as run:
        wait_for(run, "TransactionsUnreadable: TopicReplaced")
        assert oks(tmp_path, "orders") == [(1, "a")]


def wait_for(run: Run, text: str) -> None:
    run.until(lambda: run.source.warning().startswith(text))


@pytest.mark.parametrize(("connector", "table"), [("postgresql", "others"), ("mysql", "items")])
def test_events_of_another_origin_stop_their_table(kafka: Broker, tmp_path: Path, connector: str, table: str) -> None:
    """Their number would be missed, or what a restart does is not known."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        origin = {"connector": connector, "schema": "public", "table": table, "sequence": '[null, "9"]'}
        value = {"op": "c", "after": {"id": 1}, "source": origin}
        value |= {"transaction": {"id": "9:9", "total_order": 1, "data_collection_order": 1}}
        produce(kafka, shop.connector.topic("items"), value, key=b'{"id":1}')
        run.until(run.source.stop_reasons)
        assert run.source.stop_reasons()["items"].startswith("OtherOrigin: table items: partition 0 of topic")
        shop.commit(("orders", 1, "a"))
        shop.connector.send_all()
        run.until(lambda: oks(tmp_path, "orders") == [(1, "a")])


SEQUENCES = [None, "", "[]", '["9"]', '["9", null]', '["x", "9"]', '["9", "9", "9"]', "{}", "[" * 50_000]


@pytest.mark.parametrize("id", ["7:9", None], ids=["of a transaction", "of none"])
def test_events_without_a_sequence_stop_their_table(kafka: Broker, tmp_path: Path, id: str | None) -> None:
    """The source could take an older event that comes again for a newer one. So it binds nothing behind the event, also
    not in another process, and the other tables go on."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit(("items", 1, "a"), ("orders", 1, "a"))
        shop.connector.send_all()
        shop.until_last(run)
        block = id and {"id": id, "total_order": 1, "data_collection_order": 1}
        origin = {"connector": "postgresql", "schema": "public", "table": "items"}
        value = {"op": "u", "after": {"id": 1, "name": "old"}, "source": origin, "transaction": block}
        produce(kafka, shop.connector.topic("items"), value, partition=1, key=b'{"id":1}')
        shop.commit(("items", 1, "b"), ("orders", 1, "b"))
        shop.connector.send_all()
        run.until(lambda: run.source.stop_reasons() and oks(tmp_path, "orders") == [(1, "b")])
    with Run(tmp_path, shop.spec(), term=2) as run:
        run.tick(3)
        (text,) = run.source.stop_reasons().values()
        assert text.startswith("SequenceMissing: table items: partition 1 of topic")
        assert "source.sequence of the event is none" in text
        assert "sourceinfo.struct.maker" in text
        assert oks(tmp_path, "items") == [(1, "a")]


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_sequence_has_the_commit_before_and_the_place(sequence: str | None) -> None:
    def value(sequence: str | None) -> bytes:
        block = {"id": "7:9", "total_order": 1, "data_collection_order": 1}
        origin = {"connector": "postgresql", "schema": "public", "table": "t", "sequence": sequence}
        return json.dumps({"op": "c", "source": origin, "transaction": block}).encode()

    for text, before in (('["8", "9"]', 8), ('[null, "9"]', None)):
        assert mark_of(value(text)) == TransactionMark("7", 9, 1, before, "public.t")
    with pytest.raises(NoSequence, match=r"source\.sequence of the event is"):
        mark_of(value(sequence))


def test_new_partitions(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "LOOK_SECONDS", 0.1)
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit(*(("orders", n, "a") for n in range(6)))
        shop.connector.send_all()
        shop.until_last(run)
        add_partitions(kafka, shop.connector.topic("orders"), 3)
        add_partitions(kafka, shop.connector.topic("items"), 3)
        shop.connector.widen(3)
        shop.commit(("orders", 7, "b"), ("orders", 8, "b"), ("items", 1, "b"), ("orders", 9, "b"))
        shop.connector.send_all()
        shop.until_last(run)
