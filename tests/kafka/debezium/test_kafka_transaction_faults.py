"""Debezium's transactions where something fails beside them: tables that stop, batches of Kafka Connect's producer,
slow brokers, databases that are restored, and more transactions than may be pending."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.debezium import connector
from tests.kafka.debezium.test_kafka_transaction_histories import stop_soon
from tests.kafka.debezium.test_kafka_transactions import NAMES, Shop, contents, end, joined, shown, soon, wait_for
from tests.kafka.topics import Run, add_partitions, delete_topic, new_topic, produce, spec_of
from tests.storage.ingestion_samples import oks
from tidemark_replica.storage.kafka import followed_topic, reader
from tidemark_replica.storage.kafka.transactions import log, undecided

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
__all__ = ["soon"]


def test_a_stopped_table_goes_on_while_a_transaction_waits(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the tick in which it goes on, the others bind nothing: it has all events of what they bind afterwards."""
    shop = Shop(kafka)
    delete_topic(kafka, shop.connector.topic("items"))
    with Run(tmp_path, shop.spec()) as run:
        run.until(lambda: run.source.stop_reasons())
        shop.commit(("orders", 1, "a"))
        shop.connector.send_all()
        run.until(lambda: oks(tmp_path, "orders") == [(1, "a")])
    new_topic(kafka, 2, shop.connector.topic("items"))
    shop.commit(("orders", 1, "b"), ("items", 1, "b"))
    shop.connector.send_all()
    for module in (log, followed_topic):  # the first tick reads all
        monkeypatch.setattr(module, "WAIT_SECONDS", 3.0)
    with Run(tmp_path, shop.spec(), term=2) as run:
        run.tick(2)
        monkeypatch.setattr(followed_topic, "WAIT_SECONDS", 0.2)
        run.until(lambda: contents(tmp_path, NAMES) == shown(shop.upstream.states[-1], NAMES))


@pytest.mark.parametrize("on_gap", ["stop", "skip"])
def test_a_batch_that_failed_comes_behind_later_events(kafka: Broker, tmp_path: Path, on_gap: str) -> None:
    """The broker refuses the batch of a partition, and takes the next one; then Connect begins again before both."""
    shop = Shop(kafka)
    table, connector = shop.table("orders", on_gap=on_gap), shop.connector
    with Run(tmp_path, spec_of(kafka, table, transactions=connector.transaction_topic)) as run:
        joined(run)
        shop.commit(("orders", 0, "6"))
        shop.commit(("orders", 1, "7"), ("orders", 2, "7"))
        shop.commit(("orders", 3, "8"))
        assert connector.queue(99) == 10
        assert connector.refuse(("orders", 1)).at[0] == 1
        connector.send(0)
        connector.restart(0)
        connector.send_all()
        shop.commit(("orders", 0, "9"), ("orders", 3, "9"))
        connector.send_all()
        if on_gap == "stop":
            wait_for(run, "TransactionIncomplete: transaction 701 of topic")
            shop.tick(run, 3)
            assert shop.seen == 1
            assert "behind later ones" in run.source.warning()
        else:
            run.until(lambda: (3, "9") in oks(tmp_path, "orders"))
            wait_for(run, "GapSkipped: table orders: gaps passed over: 1")  # its partition may be read later


def test_a_batch_that_failed_comes_behind_later_events_of_its_transaction(kafka: Broker, tmp_path: Path) -> None:
    """Connect begins again within the transaction, at the record that was refused, and counts from there."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec("orders")) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("orders", 3, "b"), ("orders", 5, "c"))
        shop.connector.queue(4)
        shop.connector.deliver((shop.connector.topic("orders"), 1), 1)
        shop.connector.refuse(("orders", 1))
        shop.connector.send(0)
        shop.connector.restart(0, 1)
        shop.commit(*(("orders", id, "d") for id in range(4)))
        shop.connector.send_all()
        wait_for(run, "TransactionIncomplete: transaction 700 of topic")
        shop.tick(run, 3)
        assert shop.seen == 0


def bound_undecided(kafka: Broker, run: Run, shop: Shop, refused: bool) -> None:
    """Connect begins again within a transaction, and with `refused` a broker does not take its last event. Each
    partition has events of a later transaction, so both are bound."""
    shop.commit(("orders", 1, "7"), ("orders", 2, "7"), ("orders", 5, "7"))
    shop.commit(("orders", 0, "8"), ("orders", 1, "8"))
    shop.connector.send(2)
    shop.connector.restart(0, 1)
    shop.connector.queue(99)
    if refused:
        assert shop.connector.refuse(("orders", 1)).key == {"id": 5}
    shop.connector.send(0)
    run.until(lambda: (1, "8") in oks(run.root, "orders"))
    assert ((5, "7") in oks(run.root, "orders")) is not refused


@pytest.mark.parametrize("on_gap", ["stop", "skip"])
@pytest.mark.parametrize("remembered", [True, False])
def test_a_batch_that_failed_comes_behind_the_binding(
    kafka: Broker, tmp_path: Path, on_gap: str, remembered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch has a transaction that was undecided: its events are not taken for repeats, whichever process reads
    them."""
    monkeypatch.setattr(undecided, "BYTES_MAX", 200 if remembered else 0)
    reason = "TransactionIncomplete" if remembered else "TransactionUnclear"
    text = "had not come when it was bound" if remembered else "too many to remember"
    shop = Shop(kafka)
    spec = spec_of(kafka, shop.table("orders", on_gap=on_gap), transactions=shop.connector.transaction_topic)
    with Run(tmp_path, spec) as run:
        joined(run)
        bound_undecided(kafka, run, shop, refused=True)
        shop.connector.restart(0)
        shop.connector.send_all()
        if on_gap == "stop":
            wait_for(run, f"{reason}: transaction 700 of topic")
    with Run(tmp_path, spec, term=2) as run:
        shop.commit(("orders", 2, "9"))
        shop.connector.send_all()
        if on_gap == "stop":
            wait_for(run, f"{reason}: transaction 700 of topic")
            before = oks(tmp_path, "orders")  # the last transaction may have been bound before
            run.tick(3)
            assert text in run.source.warning()
            assert oks(tmp_path, "orders") == before
            assert (5, "7") not in before
        else:
            run.until(lambda: (2, "9") in oks(tmp_path, "orders"))
            # its partition may be read later; where it is not known what is late, each partition may have a gap
            wait_for(run, f"GapSkipped: table orders: gaps passed over: {1 if remembered else ''}")
            assert text in run.source.warning()


@pytest.mark.parametrize("on_gap", ["stop", "skip"])
@pytest.mark.parametrize("away", ["stopped", "removed"])
def test_a_batch_that_failed_comes_once_the_table_goes_on(
    kafka: Broker, tmp_path: Path, on_gap: str, away: str
) -> None:
    """The table has the transaction, which was undecided; it was away when the refused event came."""
    shop = Shop(kafka)
    topic, items = shop.connector.transaction_topic, shop.table("items")
    spec = spec_of(kafka, shop.table("orders", on_gap=on_gap), items, transactions=topic)
    with Run(tmp_path, spec) as run:
        joined(run)
        shop.commit(("orders", 1, "7"), ("orders", 2, "7"), ("orders", 5, "7"))
        shop.commit(("orders", 0, "8"), ("orders", 1, "8"), ("items", 0, "8"), ("items", 1, "8"))
        shop.connector.send(2)
        shop.connector.restart(0, 1)
        shop.connector.queue(99)
        assert shop.connector.refuse(("orders", 1)).key == {"id": 5}
        shop.connector.send(0)
        run.until(lambda: (1, "8") in oks(tmp_path, "orders"))
        if away == "stopped":
            stop_soon(run, "orders")
            run.until(lambda: "orders" in run.source.stop_reasons())
    shop.connector.restart(0)
    shop.commit(("orders", 2, "9"), ("items", 0, "9"))
    shop.connector.send_all()
    if away == "removed":
        with Run(tmp_path, spec_of(kafka, items, transactions=topic), term=2) as run:
            run.until(lambda: (0, "9") in oks(tmp_path, "items"))
    with Run(tmp_path, spec, term=3) as run:
        joined(run)
        if on_gap == "stop":
            wait_for(run, "TransactionIncomplete: transaction 700 of topic")
            assert "had not come when it was bound" in run.source.warning()
        else:
            run.until(lambda: (2, "9") in oks(tmp_path, "orders"))
            wait_for(run, "GapSkipped: table orders: gaps passed over: 1")  # its partition may be read later
        assert (5, "7") not in oks(tmp_path, "orders")


def test_an_undecided_transaction_comes_again_after_partitions_were_added(kafka: Broker, tmp_path: Path) -> None:
    """Its events are in other partitions then: they are left out."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec("orders")) as run:
        joined(run)
        bound_undecided(kafka, run, shop, refused=False)
    for name in NAMES:
        add_partitions(kafka, shop.connector.topic(name), 3)
    shop.connector.widen(3)
    with Run(tmp_path, shop.spec("orders"), term=2) as run:
        run.until(lambda: len(run.source._tables["orders"].offsets) == 3)
        shop.connector.restart(0)
        for name in "abc":
            shop.commit(*(("orders", id, name) for id in range(3)))
        shop.connector.send_all()
        run.until(lambda: contents(tmp_path, ("orders",)) == shown(shop.upstream.states[-1], ("orders",)))
        assert run.source.warning() == ""


def test_an_undecided_transaction_comes_again_behind_its_binding(kafka: Broker, tmp_path: Path) -> None:
    """The transaction comes again as a whole: it is left out, by the same process, with new clients, and by another
    one."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec("orders")) as run:
        joined(run)
        bound_undecided(kafka, run, shop, refused=False)
        for begin in range(3):
            if begin == 1:
                run.source._disconnect({})
            shop.connector.restart(0, begin)
            shop.connector.send_all()
            shop.commit(("orders", 3, f"{begin}"))
            shop.connector.send_all()
            shop.until_last(run)
    with Run(tmp_path, shop.spec("orders"), term=2) as run:
        shop.connector.restart(0)
        shop.commit(("orders", 3, "9"))
        shop.connector.send_all()
        shop.until_last(run)
        assert run.source.warning() == ""


@pytest.mark.parametrize("later", [True, False], ids=["behind a later one", "behind its own events"])
def test_events_count_from_the_middle_and_then_from_the_begin(kafka: Broker, tmp_path: Path, later: bool) -> None:
    """An event comes again with a smaller order, and with a greater one the next time: no batch was refused, so nothing
    waits for good. The events between are of a later transaction, or there are none."""
    shop = Shop(kafka)
    with Run(tmp_path, shop.spec("orders")) as run:
        joined(run)
        shop.commit(*(("orders", id, "6") for id in range(2)))
        shop.commit(("orders", 2, "7"), ("orders", 1, "7"), *(() if later else (("orders", 5, "7"),)))
        shop.commit(("orders", 1, "8"))
        shop.connector.send_all()
        shop.connector.restart(1, 1)
        shop.connector.send(99 if later else 2)
        shop.connector.restart(1)
        shop.connector.send_all()
        shop.commit(*(("orders", id, "9") for id in range(2)))
        shop.connector.send_all()
        shop.until_last(run)


def test_restarts_begin_at_several_rows_of_one_copy(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one COPY have one position in the log, and Connect begins again at another one of them each time: no
    batch was refused, so nothing waits for good."""
    monkeypatch.setattr(connector, "place", lambda number, at: 10_000 * (number + 1) + at - at % 4)
    shop = Shop(kafka, 1)
    with Run(tmp_path, shop.spec("orders")) as run:
        joined(run)
        shop.commit(("orders", 9, "6"))
        shop.commit(*(("orders", id, "7") for id in range(4)), *(("orders", id, "8") for id in range(0, 8, 2)))
        assert shop.connector.send(5) == 5  # the first row of the second one
        shop.connector.restart(1, 1)
        shop.connector.send(5)  # the other rows, and the first event of another position
        shop.connector.restart(1)
        shop.connector.send_all()
        shop.commit(("orders", 9, "9"))
        shop.connector.send_all()
        shop.until_last(run)


def test_begin_that_comes_again_behind_another_transaction_than_the_one_before(kafka: Broker, tmp_path: Path) -> None:
    """A second task of the connector dies early, and a third one begins within the transaction, where the first one
    was: END counts from there."""
    shop = Shop(kafka, 1)
    with Run(tmp_path, shop.spec("orders")) as run:
        joined(run)
        shop.commit(("orders", 1, "5"))
        shop.commit(("orders", 2, "6"))
        shop.commit(("orders", 3, "a"), ("orders", 4, "b"), ("orders", 5, "c"))
        shop.connector.send(9)
        shop.connector.restart(0)
        shop.connector.send(3)
        shop.connector.restart(2, 1)
        shop.connector.send_all()
        wait_for(run, "TransactionUndecided: transaction 702")
        shop.commit(("orders", 1, "d"))
        shop.connector.send_all()
        shop.until_last(run)


def test_another_process_begins_within_the_first_transaction(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic of transactions answers later than those of the tables."""
    shop = Shop(kafka)
    shop.commit(("orders", 1, "a"), ("orders", 2, "a"), ("items", 1, "a"), ("items", 2, "a"))
    shop.connector.send(4)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.tick(run, 2)
        assert shop.seen == 0
    monkeypatch.setattr(log, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(followed_topic, "WAIT_SECONDS", 3.0)
    with Run(tmp_path, shop.spec(), term=2) as run:
        shop.tick(run, 3)
        assert shop.seen == 0
        monkeypatch.setattr(followed_topic, "WAIT_SECONDS", 0.2)
        monkeypatch.setattr(log, "WAIT_SECONDS", 0.2)
        shop.connector.send_all()
        shop.until_last(run)


def test_begin_that_comes_after_the_events(kafka: Broker, tmp_path: Path) -> None:
    """The case is the first transaction of a connector, as tables begin: its events do not tell the commit before."""
    shop = Shop(kafka)
    shop.commit(("orders", 1, "a"), ("items", 1, "a"))
    shop.connector.queue(3)
    for name in NAMES:
        shop.connector.deliver((shop.connector.topic(name), 1), 9)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        wait_for(run, "TransactionUnknown: transaction 700 of topic")
        shop.tick(run, 2)
        assert shop.seen == 0
        shop.connector.send_all()
        shop.until_last(run)


@pytest.mark.parametrize("whole", [True, False])
def test_the_first_transaction_comes_again(kafka: Broker, tmp_path: Path, whole: bool) -> None:
    shop = Shop(kafka, 1)
    shop.commit(("orders", 1, "a"))
    shop.commit(("orders", 1, "b"))
    shop.commit(("orders", 3, "c"))
    shop.connector.send_all()
    with Run(tmp_path, shop.spec(**({} if whole else {"transactions": ""}))) as run:
        run.tick(3)
        run.until(lambda: contents(tmp_path, NAMES) == shown(shop.upstream.states[-1], NAMES))
        shop.connector.restart(0)
        shop.connector.send_all()
        run.until(lambda: run.is_at_end(run.spec.tables[0]))
        assert contents(tmp_path, NAMES) == shown(shop.upstream.states[-1], NAMES)


@pytest.mark.parametrize("bad", ["LogReplaced", "RecordUnknown"])
def test_a_log_that_is_another_one_holds_the_source(kafka: Broker, tmp_path: Path, bad: str) -> None:
    """At each tick, and for another process: nothing more is bound."""
    shop = Shop(kafka)
    topic = shop.connector.transaction_topic
    if bad == "LogReplaced":
        produce(kafka, topic, end("900:90000000"))
    for name in "abc":
        shop.commit(("orders", 1, name), ("items", 1, name))
    shop.connector.send_all()
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        run.until(lambda: contents(tmp_path, NAMES) == shown(shop.upstream.states[-1], NAMES))
        shop.commit(("orders", 1, "d"), ("items", 1, "d"))
        shop.connector.queue(99)
        shop.connector.deliver((topic, 0), 99)
        if bad == "RecordUnknown":
            produce(kafka, topic, {"status": "OTHER"})
        wait_for(run, f"TransactionsUnreadable: {bad}")
        shop.connector.send_all()
        stays_held(run, shop, bad)
    with Run(tmp_path, shop.spec(), term=2) as run:
        wait_for(run, f"TransactionsUnreadable: {bad}")
        stays_held(run, shop, bad)


def stays_held(run: Run, shop: Shop, why: str) -> None:
    """Also without a look at each tick, which reads again what was read before."""
    for _ in range(6):
        run.tick()
        assert run.source.warning().startswith(f"TransactionsUnreadable: {why}")
        assert contents(run.root, NAMES) == shown(shop.upstream.states[3], NAMES)


def test_more_transactions_than_may_be_pending(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table has none of the first ones: its event is of a later transaction, whose BEGIN is not read yet."""
    monkeypatch.setattr(log, "PENDING_MAX", 5)
    monkeypatch.setattr(reader, "BATCH_RECORDS", 2)
    shop = Shop(kafka, 1)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("items", 1, "a"))
        shop.connector.send_all()
        shop.until_last(run)
    for n in range(12):
        shop.commit(("orders", 1, f"{n}"))
    shop.commit(("items", 1, "z"))
    shop.connector.send_all()
    with Run(tmp_path, shop.spec(), term=2) as run:
        shop.until_last(run)


def test_a_later_event_beyond_those_that_may_be_pending(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the proof that an undecided transaction is whole."""
    monkeypatch.setattr(log, "PENDING_MAX", 5)
    monkeypatch.setattr(reader, "BATCH_RECORDS", 2)
    shop = Shop(kafka, 1)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("orders", 2, "a"), ("items", 1, "a"))
        shop.connector.send(2)
        shop.connector.restart(0, 1)
        shop.connector.send_all()
        for n in range(12):
            shop.commit(("orders", 1, f"{n}"))
        shop.connector.send_all()
        wait_for(run, "TransactionUndecided")
        shop.tick(run, 3)
        assert shop.seen == 0
        shop.commit(("items", 9, "z"))
        shop.connector.send_all()
        shop.until_last(run)
