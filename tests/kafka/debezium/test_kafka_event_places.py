"""The change events of Debezium that came again, by their places in the logs of databases: never one that is new. JSON
and Avro say the same of each event."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Message

from tests.kafka.debezium import avro_events
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaTable
from tidemark_protocol.types import BIGINT, TIMESTAMP, Column
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.by_key import event_places
from tidemark_replica.storage.kafka.by_key.debezium import AvroEvents, JsonEvents
from tidemark_replica.storage.kafka.by_key.event_places import EventPlaces
from tidemark_replica.storage.kafka.by_key.opened import Open, Opened
from tidemark_replica.storage.kafka.values.decoding import decoder_of, head_decoder_of

ROW = ({"name": "id", "type": "long"}, avro_events.nullable(avro_events.ZONED, "at"))
SCHEMAS = {name: avro_events.envelope(*ROW, connector=name) for name in ("postgresql", "mysql", "mariadb")}
ID = (Column("id", BIGINT),)
COLUMNS = (*ID, Column("at", TIMESTAMP))
Event = dict[str, Any]
LARGE = str(1 << 62)


def event(connector: str, at: int, ms: int = 5, op: str = "c", **source: Any) -> Event:
    """An event at this place of a log."""
    origin: dict[str, Any] = {"connector": connector, "name": "shop", "ts_ms": ms, "db": "a"}
    if connector == "postgresql":
        origin |= {"sequence": json.dumps([str(at), str(at)])}
    else:
        origin |= {"file": "bin.000009", "pos": at, "row": 0, "server_id": 1}
    return {"op": op, "after": None if op in ("d", "m") else {"id": 1}, "source": origin | source}


def malformed(event: Event) -> Event:
    """The event with a row that is none of the table."""
    return event | {"after": {"id": 1, "at": "infinity"}}


class Json:
    """A maker of records, and what opens them."""

    def record(self, event: Event | None, partition: int = 0) -> Message:
        value = None if event is None else json.dumps(event).encode()
        return Message(topic="t", partition=partition, offset=0, key=b"1", value=value)

    def opener(self, places: EventPlaces) -> Open:
        table = KafkaTable("t", "t", "json", COLUMNS, envelope="debezium", key_format="json", key_columns=ID)
        return JsonEvents(decoder_of(table), places)

    def opened(self, events: Sequence[Event | None], places: EventPlaces, partitions: Sequence[int] = ()) -> Opened:
        made = zip(events, partitions or [0] * len(events), strict=True)
        return self.opener(places)([self.record(*each) for each in made])


class Avro(Json):
    """The records of one batch are of one connector."""

    def __init__(self, connector: str = "postgresql") -> None:
        self._schema = SCHEMAS.get(connector, SCHEMAS["postgresql"])

    def record(self, event: Event | None, partition: int = 0) -> Message:
        value = None if event is None else avro_events.body(self._schema, event)
        return Message(topic="t", partition=partition, offset=0, key=b"1", value=value)

    def opener(self, places: EventPlaces) -> Open:
        schema = KafkaSchema(json.dumps(self._schema))
        table = KafkaTable("t", "t", "avro", (), envelope="debezium", key_format="json", key_columns=ID, schema=schema)
        heads = head_decoder_of(table)
        assert heads is not None
        return AvroEvents(decoder_of(table), heads, ["id", "at"], places)


def ignored(*events: Event) -> set[int]:
    """The positions of the events that are left out; a process of its own opens each. JSON, Avro, and Avro in one batch
    say the same."""
    forms, found = (Json(), Avro(events[0]["source"]["connector"])), []
    for form in forms:
        texts, out = dict[int, str](), set()
        for i, each in enumerate(events):
            places = EventPlaces(texts)
            out |= {i} if form.opened([each], places).ignored else set()
            texts = places.texts
        at_once = EventPlaces({})
        found += [(out, texts), (set(form.opened(events, at_once).ignored), at_once.texts)]
    assert found == [found[0]] * 4
    return found[0][0]


@pytest.mark.parametrize("connector", ["postgresql", "mysql", "mariadb"])
def test_an_event_that_came_again_is_left_out(connector: str) -> None:
    assert ignored(event(connector, 9), event(connector, 8), event(connector, 9), event(connector, 3, 6)) == {1}


@pytest.mark.parametrize("connector", ["postgresql", "mysql", "mariadb"])
def test_times_that_do_not_grow_with_places(connector: str) -> None:
    """A statement began before one that was committed first, or a clock went back: an event that comes again is later
    than the last one, and no later than all. Later ones than these are of a log that was restored."""
    first, second = event(connector, 8, 90), event(connector, 9, 70)
    assert ignored(first, second, first, second) == {2}
    assert ignored(first, second, event(connector, 10, 80), first, second, event(connector, 3, 91)) == {3, 4}
    restored = event(connector, 3, 91), event(connector, 4, 60)
    assert ignored(first, second, *restored, restored[0], event(connector, 2, 91)) == {4, 5}


@pytest.mark.parametrize("connector", ["postgresql", "mysql"])
def test_a_malformed_row_that_came_again_is_left_out(connector: str) -> None:
    """It would take the place of a good row of its key that was written later, and that is left out itself."""
    bad = malformed(event(connector, 5))
    assert ignored(bad, event(connector, 6), event(connector, 7), bad, event(connector, 6)) == {3, 4}


def test_what_has_no_row_needs_none() -> None:
    """Deletions, messages and truncations are so whatever `after` is."""
    events = [malformed(event("postgresql", 1, op=op)) for op in "dmx"]
    for form in (Json(), Avro()):
        assert outcome(form.opened(events, EventPlaces({}))) == ([], {2}, {1})
        with pytest.raises(TableStopped):
            form.opened([malformed(event("postgresql", 1, op="t"))], EventPlaces({}))


@pytest.mark.parametrize("file", ["bin.-99999999999999999999", "bin.99999999999999999999", "bin.x", ".", "bin.-1"])
def test_a_file_is_whatever_its_number_is(file: str) -> None:
    events = [event("mysql", 9, file=file), event("mysql", 9)]
    for form in (Json(), Avro("mysql")):
        assert outcome(form.opened(events, EventPlaces({}))) == ([(0, 1, None), (1, 1, None)], set(), set())


def test_the_first_transaction_of_a_connector_has_no_commit_before() -> None:
    """It comes again like any other one. A connector that is made anew writes it at a later time."""
    first = '[null, "5"]'
    assert ignored(event("postgresql", 1, sequence=first), event("postgresql", 9), event("postgresql", 1)) == {2}
    again, anew = event("postgresql", 1, sequence=first), event("postgresql", 1, 6, sequence=first)
    assert ignored(event("postgresql", 1, sequence=first), event("postgresql", 9), again, anew) == {2}


@pytest.mark.parametrize("other", [{"name": "other"}, {"db": "b"}])
@pytest.mark.parametrize("connector", ["postgresql", "mysql"])
def test_events_of_several_databases_in_one_topic_are_all_taken(connector: str, other: dict[str, str]) -> None:
    """Each log has a place of its own, so that in each of them what came again is left out."""
    one, two = event(connector, 9), event(connector, 2, **other)
    assert ignored(one, two, event(connector, 10), event(connector, 3, **other), one, two) == {4, 5}


def test_events_of_mysql_with_gtids_are_all_taken() -> None:
    """After a failover the connector goes on at another server, whose files are others."""
    assert not ignored(event("mysql", 9, gtid="u:1"), event("mysql", 4, gtid="u:2"))


def test_logs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_places, "LOGS_MAX", 2)
    monkeypatch.setattr(event_places, "NAMES_LENGTH_MAX", 100)
    events = [event("postgresql", 9, db=name) for name in ("a", "b", "a", "c", "d" * 100)]
    for form in (Json(), Avro()):
        places = EventPlaces({})
        form.opened(events, places)
        assert [place["log"][2] for place in json.loads(places.texts[0])] == ["a", "c"]


@pytest.mark.parametrize("sequence", ["[" * 50_000, '["1", null]', "{}", '["1"]', '["x", "1"]', '["1", "1", "1"]'])
def test_a_sequence_that_is_none_is_no_place(sequence: str) -> None:
    assert not ignored(event("postgresql", 9), event("postgresql", 1, sequence=sequence))


def outcome(opened: Opened) -> tuple[list[Any], set[int], set[int]]:
    """The good rows with their positions, what is malformed, and what is left out."""
    at = sorted(opened.rows)
    decoded = opened.decode(at)
    bad = {at[i] for i in decoded.bad}
    columns = (column.to_pylist() for column in decoded.columns)
    rows = list(zip((i for i in at if i not in bad), *columns, strict=True))
    return rows, bad | set(opened.bad), set(opened.ignored)


@pytest.mark.parametrize("connector", ["postgresql", "mysql", "other"])
@pytest.mark.parametrize("seed", range(20))
def test_oracle_json_and_avro_open_equally(connector: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random batches of events that come again, of several logs, files and partitions, restored ones and malformed
    rows among them."""
    monkeypatch.setattr(event_places, "LOGS_MAX", 3)
    draw, forms = random.Random(f"{connector}{seed}"), (Json(), Avro(connector))
    kept, at = [EventPlaces({}) for _ in forms], 0
    for _ in range(12):
        batch: list[Event | None] = []
        for _ in range(draw.choice([0, 1, 5, 60])):
            at = max(0, at + draw.choice([0, 1, 1, 1, 1, -draw.randrange(8)]))
            batch.append(None if draw.random() < 0.05 else random_event(draw, connector, at))
        partitions = [draw.randrange(2) for _ in batch]
        json_opened, avro_opened = (
            form.opened(batch, places, partitions) for form, places in zip(forms, kept, strict=True)
        )
        assert outcome(avro_opened) == outcome(json_opened)
        assert kept[1].texts == kept[0].texts
        assert kept[1].repeated == kept[0].repeated
        kept = [EventPlaces(places.texts) if draw.random() < 0.5 else places for places in kept]
        for one in kept:
            one.repeated = 0


def random_event(draw: random.Random, connector: str, at: int) -> Event:
    ms = draw.choice([at, at, at, 5, at + 50])
    op = draw.choice(["c", "c", "u", "d", "r", "m", "x"])
    source: dict[str, Any] = {"db": draw.choice(["a", "a", "a", "b", "c", "d"]) if draw.random() < 0.3 else "a"}
    if connector == "postgresql" and draw.random() < 0.2:
        sequence = ['[null,"7"]', "", "[]", f'["{LARGE}","{LARGE}"]', '[ "1" , "9" ]', None, '["1","-2"]']
        source["sequence"] = draw.choice(sequence[:-1])
    if connector == "mysql":
        source |= {"file": f"bin.{at // 9:06}", "row": draw.randrange(2), "server_id": draw.choice([1, 1, 1, 2])}
        source |= draw.choice([{}, {}, {}, {"gtid": "u:1"}, {"file": "bin"}, {"file": ""}])
    made = event(connector, at, ms, op, **source)
    if draw.random() < 0.1:
        made["after"] = None
    return malformed(made) if draw.random() < 0.1 else made
