"""The record in bindings of transactions that were bound undecided: it tells events that come again, and late ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, Message

from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.storage.kafka.followed_topic import FollowedTopic
from tidemark_replica.storage.kafka.positions import Position
from tidemark_replica.storage.kafka.transactions import event_positions, undecided
from tidemark_replica.storage.kafka.transactions.cuts import TransactionCuts
from tidemark_replica.storage.kafka.transactions.event_positions import Arrival, EventPositions, LastEvent
from tidemark_replica.storage.kafka.transactions.log import PendingTransaction
from tidemark_replica.storage.kafka.transactions.metadata import TransactionMark
from tidemark_replica.storage.kafka.transactions.read_ahead import EventRun, Fate, ReadAhead
from tidemark_replica.storage.kafka.transactions.undecided import Positions, TablePositions, UndecidedBound


def bound(*transactions: tuple[str, int, Positions]) -> UndecidedBound:
    """After a binding for each transaction."""
    found = UndecidedBound()
    for one in transactions:
        found = UndecidedBound(found.text_with([one]))
    return found


def orders(*positions: int, partitions: int = 1) -> Positions:
    return {"orders": TablePositions(partitions, {0: positions})}


def comes(found: UndecidedBound, id: str, partition: int, count: int, positions: Sequence[int]) -> list[Arrival]:
    known = found.positions("orders", id, positions[0])
    seen = EventPositions(None if known is None else known.of(partition, count))
    return [seen.add(at, order, order > 1, None) for order, at in enumerate(positions, 1)]


def test_positions_come_back_as_they_were() -> None:
    """By partition, also the same one several times, and the greatest ones that there are."""
    found = bound(("7", (1 << 64) - 1, {"orders": TablePositions(3, {0: [3, 3, 9], 2: [0, (1 << 64) - 1]})}))
    seen = found.positions("orders", "7", 3)
    assert seen is not None
    assert [list(seen.of(p, 3)) for p in range(3)] == [[3, 3, 9], [], [0, (1 << 64) - 1]]


def test_a_large_transaction_is_remembered_beside_many_others() -> None:
    """A batch of 200,000 rows that Kafka Connect writes again: each event comes again, and one that was not there is
    late."""
    draw, at = random.Random(1), 900_000
    positions = [at := at + draw.randrange(60, 400) for _ in range(200_000)]
    before = [(str(n), 100 * n, orders(100 * n - 5)) for n in range(1, 300)]
    last = positions[-1]
    after = [(str(n), last + n, orders(last + n)) for n in range(1_000, 1_300)]
    text = UndecidedBound().text_with([*before, ("900", last + 1, orders(*positions))])
    found = UndecidedBound(UndecidedBound(text).text_with(after))
    assert set(comes(found, "900", 0, 1, positions)) == {Arrival.AGAIN}
    assert comes(found, "900", 0, 1, [positions[5] + 1]) == [Arrival.LATE]
    assert comes(found, "7", 0, 1, [695]) == [Arrival.AGAIN]


def test_transactions_that_were_decided_are_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are undecided ones that are forgotten, as many were bound since."""
    monkeypatch.setattr(undecided, "TRANSACTIONS_MAX", 3)
    found = bound(*((str(n), 100 * n, orders(100 * n - 5)) for n in range(1, 10)))
    assert [found.has("orders", str(n), 100 * n - 5) for n in range(1, 10)] == 6 * [False] + 3 * [True]
    assert not found.has("orders", "777", 450)
    assert not found.has("orders", "9", 901)  # another transaction of the same number


def test_earlier_transactions_are_remembered_without_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are too many: whether an event comes again is not known then."""
    monkeypatch.setattr(undecided, "BYTES_MAX", 400)
    many = [n * n for n in range(30, 60)]
    found = bound(*((str(n), 10_000 + n, orders(*many)) for n in range(5)))
    known = [found.positions("orders", str(n), many[0]) is not None for n in range(5)]
    assert known == sorted(known)
    assert set(known) == {False, True}
    assert all(found.has("orders", str(n), many[0]) for n in range(5))
    assert comes(found, "0", 0, 1, [many[0]]) == [Arrival.LATE]


def test_events_are_late_for_the_tables_that_have_the_transaction() -> None:
    found = bound(("7", 90, {"orders": TablePositions(1, {0: [5]}), "parts": None}))
    assert found.has("orders", "7", 6)
    assert found.has("parts", "7", 6)
    assert not found.has("items", "7", 6)
    assert found.positions("parts", "7", 6) is None


def test_added_partitions_have_the_events_of_all() -> None:
    """Keys are in other partitions then. Before, an event that another partition has is another one: both events of a
    changed key have one position."""
    found = bound(("7", 90, {"orders": TablePositions(2, {0: [5, 8], 1: [6]})}))
    assert comes(found, "7", 2, 3, [5, 6, 8]) == 3 * [Arrival.AGAIN]
    assert comes(found, "7", 0, 3, [6]) == [Arrival.AGAIN]
    assert comes(found, "7", 2, 3, [7]) == [Arrival.LATE]
    assert comes(found, "7", 1, 2, [5]) == [Arrival.LATE]


def arrivals(*events: tuple[str, int, int, bytes | None]) -> list[Arrival]:
    """The ways in which the events of transaction 7 come. An event: its transaction, order, position and key."""
    seen, found, last = EventPositions(), list[Arrival](), LastEvent(TransactionMark("6", 0, 1, 0, "t"), b"")
    for id, order, position, key in events:
        goes_on = last.is_followed(TransactionMark(id, position, order, 0, "t"), key)
        if id == "7":
            found.append(seen.add(position, order, goes_on, key))
    return found


def test_events_of_one_position_are_told_apart() -> None:
    """Orders count from the middle of the transaction, and from its begin afterwards: an event that comes again has a
    greater order than before. One of another key, in the same copy of rows, does not come again."""
    first, again, late = Arrival.FIRST, Arrival.AGAIN, Arrival.LATE
    assert arrivals(("7", 5, 20, b"a"), ("7", 1, 20, b"a"), ("7", 5, 20, b"a")) == [first, again, again]
    between = ("7", 6, 20, b"b"), ("8", 1, 30, b"a")
    assert arrivals(*between, ("7", 1, 20, b"b"), ("8", 1, 30, b"a"), ("7", 6, 20, b"b")) == [first, again, again]
    assert arrivals(*between, ("7", 5, 20, b"a")) == [first, first]
    behind = ("7", 5, 20, b"a"), ("7", 7, 30, b"c")
    assert arrivals(*behind, ("7", 1, 20, b"a"), ("7", 5, 20, b"a")) == [first, first, again, again]
    assert arrivals(*behind, ("7", 5, 20, b"a"), ("7", 6, 20, b"b")) == [first, first, again, late]
    assert arrivals(("7", 1, 20, b"a"), ("7", 2, 20, b"b"), ("7", 3, 20, b"c")) == [first, first, first]
    assert arrivals(("7", 1, 20, None), ("7", 2, 20, None)) == [first, first]


def copied(transaction: str, first: int, position: int, keys: str) -> list[tuple[str, int, int, bytes | None]]:
    """Rows of one COPY, of which orders count from this one on."""
    return [(transaction, first + n, position, key.encode()) for n, key in enumerate(keys)]


def test_restarts_begin_at_several_rows_of_one_copy() -> None:
    """Each row is first once, and none is late: no batch was refused."""
    first, again, late = Arrival.FIRST, Arrival.AGAIN, Arrival.LATE
    begun, middle = copied("7", 1, 20, "abc"), [*copied("7", 1, 20, "cde"), ("7", 4, 30, b"c")]
    whole = [*copied("7", 5, 20, "abcde"), ("7", 10, 30, b"c")]
    assert arrivals(*begun, *middle, *whole) == [*3 * [first], again, *3 * [first], *6 * [again]]
    earlier = [*copied("7", 1, 20, "de"), *copied("7", 3, 20, "abcde"), *copied("7", 2, 20, "bcde")]
    assert arrivals(*earlier) == [*5 * [first], *6 * [again]]
    other = ("8", 1, 40, b"a")
    assert arrivals(*begun, other, *middle, other, *whole) == [*3 * [first], again, *3 * [first], *6 * [again]]
    assert arrivals(*middle, *whole[:5]) == [*4 * [first], late, late, *3 * [again]]


def test_the_number_tells_which_of_many_events_of_one_position_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than GROUP_MAX events have one position: there another key does not make another event."""
    first, again = Arrival.FIRST, Arrival.AGAIN
    events = [*copied("7", 1, 20, "abc"), *copied("7", 1, 20, "x"), ("7", 2, 30, b"a"), *copied("7", 1, 20, "abc")]
    monkeypatch.setattr(event_positions, "GROUP_MAX", 2)
    assert arrivals(*events) == [*3 * [first], again, first, *3 * [again]]
    monkeypatch.setattr(event_positions, "GROUP_MAX", 3)
    assert arrivals(*events) == [*5 * [first], *3 * [again]]


def test_an_event_that_was_refused_is_told_from_the_only_one_of_its_position() -> None:
    first, again, late = Arrival.FIRST, Arrival.AGAIN, Arrival.LATE
    behind = ("7", 1, 20, b"a"), ("7", 3, 30, b"c")
    assert arrivals(*behind, ("7", 1, 20, b"b"), ("7", 2, 30, b"c")) == [first, first, late, again]


@pytest.mark.parametrize("frame", [0, 5])
def test_a_key_that_is_written_with_another_schema_is_the_same_key(frame: int) -> None:
    """A registry that was filled again gives the key's schema another id. Without frames these are other keys."""
    positions = (10, 20, 30) * 2
    marks = [TransactionMark("7", position, order, 0, "s.t") for order, position in enumerate(positions, 1)]
    ahead = ReadAhead("p.s.t", "p.", 1 << 20, 100, lambda *_: (), lambda _: marks, frame)
    keys = [(1 + n // 3).to_bytes(5, "big") + b"row %d" % (n % 3) for n in range(6)]
    records = [Message("p.s.t", 0, n, key=key, value=b"{}") for n, key in enumerate(keys)]
    ahead.add(records, 0)
    assert len(ahead.late({0: 6}, lambda run: run.late is not None)) == (0 if frame else 1)


def test_rows_of_one_copy_that_bindings_have_come_again_from_anywhere() -> None:
    """Their keys are not known, but their number is."""
    seen, last = EventPositions([*5 * [20], 30]), LastEvent(TransactionMark("6", 0, 1, 0, "t"), b"")
    events = [*copied("7", 1, 20, "cde"), ("7", 4, 30, b"c"), *copied("7", 5, 20, "abcde"), ("7", 10, 30, b"c")]
    found = []
    for id, order, position, key in events:
        goes_on = last.is_followed(TransactionMark(id, position, order, 0, "t"), key)
        found.append(seen.add(position, order, goes_on, key))
    assert found == len(events) * [Arrival.AGAIN]
    assert seen.add(20, 11, False, b"f") is Arrival.LATE


def followed(name: str) -> FollowedTopic:
    table = KafkaTable(
        name,
        f"shop.{name}",
        "json",
        (Column("name", STRING),),
        envelope="debezium",
        key_format="json",
        key_columns=(Column("id", BIGINT),),
    )
    return FollowedTopic(table, None, no_consumer, "shop.")


def no_consumer() -> Consumer:
    raise AssertionError


def test_tables_that_join_with_the_binding_are_not_remembered() -> None:
    """A table that stops while the transaction is taken, or goes on behind a gap, has it afterwards, record by
    record."""
    names = ("orders", "items", "parts")
    whole = TransactionCuts("shop.transaction", {name: followed(name) for name in names}, no_consumer, 1)
    whole.passing = {"7": PendingTransaction("7", 0, 0.0, end=90)}
    whole._seen = {"7": dict.fromkeys(names, TablePositions(1, {0: [5]}))}
    _, _, seen = whole._remembered("7", {"orders": Position("t", joined=80), "items": Position("t", joined=90)})
    assert list(seen) == ["orders"]


@pytest.mark.parametrize("joined", [10, 1_500])
def test_a_late_event_is_late_wherever_its_table_goes_on(joined: int) -> None:
    """Another event of the same time is taken record by record where the table joined behind it."""
    whole = TransactionCuts("shop.transaction", {name: followed(name) for name in ("orders", "items")}, no_consumer, 1)
    whole._undecided, whole.log.watermark = bound(("7", 1_000, orders(900))), 1_500
    run = EventRun("7", 0, 500, 905, 890, first=500)
    for name, fate in (("orders", Fate.WAITS), ("items", Fate.TAKEN if joined > 890 else Fate.DROPPED)):
        assert whole.fate_of(name, Position("t", {0: 0}, joined=joined))(run, -1) is fate
