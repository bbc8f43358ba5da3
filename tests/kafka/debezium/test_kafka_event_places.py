"""Which change events of Debezium came again, by their places in the logs of databases: never one that is new."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Message

from tidemark_replica.storage.kafka.by_key import debezium
from tidemark_replica.storage.kafka.by_key.debezium import DebeziumEnvelopes


def record(connector: str, at: int, ms: int = 5, **source: Any) -> Message:
    """An event at this place of a log."""
    origin: dict[str, Any] = {"connector": connector, "name": "shop", "ts_ms": ms}
    if connector == "postgresql":
        origin |= {"db": "a", "sequence": json.dumps([str(at), str(at)])}
    else:
        origin |= {"file": "bin.000009", "pos": at, "row": 0, "server_id": 1}
    value = json.dumps({"op": "c", "after": {"id": 1}, "source": origin | source}).encode()
    return Message(topic="t", partition=0, offset=0, key=b"1", value=value)


def ignored(*records: Message, before: DebeziumEnvelopes | None = None) -> set[int]:
    """The positions of the events that are left out; a process of its own opens each."""
    places = {} if before is None else before.places
    found = set()
    for i, each in enumerate(records):
        opened = DebeziumEnvelopes(places)
        found |= {i} if opened([each]).ignored else set()
        places = opened.places
    return found


@pytest.mark.parametrize("connector", ["postgresql", "mysql", "mariadb"])
def test_an_event_that_came_again_is_left_out(connector: str) -> None:
    assert ignored(record(connector, 9), record(connector, 8), record(connector, 9), record(connector, 3, 6)) == {1}


def test_the_first_transaction_of_a_connector_has_no_commit_before() -> None:
    """It comes again like any other one. A connector that is made anew writes it at a later time."""
    first = '[null, "5"]'
    assert ignored(record("postgresql", 1, sequence=first), record("postgresql", 9), record("postgresql", 1)) == {2}
    again, anew = record("postgresql", 1, sequence=first), record("postgresql", 1, 6, sequence=first)
    assert ignored(record("postgresql", 1, sequence=first), record("postgresql", 9), again, anew) == {2}


@pytest.mark.parametrize("other", [{"name": "other"}, {"db": "b"}])
@pytest.mark.parametrize("connector", ["postgresql", "mysql"])
def test_events_of_several_databases_in_one_topic_are_all_taken(connector: str, other: dict[str, str]) -> None:
    """Each log has a place of its own, so that in each of them what came again is left out."""
    one, two = record(connector, 9), record(connector, 2, **other)
    assert ignored(one, two, record(connector, 10), record(connector, 3, **other), one, two) == {4, 5}


def test_events_of_mysql_with_gtids_are_all_taken() -> None:
    """After a failover the connector goes on at another server, whose files are others."""
    assert not ignored(record("mysql", 9, gtid="u:1"), record("mysql", 4, gtid="u:2"))


def test_logs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debezium, "LOGS_MAX", 2)
    monkeypatch.setattr(debezium, "NAMES_LENGTH_MAX", 100)
    events = DebeziumEnvelopes({})
    events([record("postgresql", 9, db=name) for name in ("a", "b", "a", "c", "d" * 100)])
    assert [place["log"][2] for place in json.loads(events.places[0])] == ["a", "c"]


@pytest.mark.parametrize("sequence", ["[" * 50_000, '["1", null]', "{}", '["1"]', '["x", "1"]', '["1", "1", "1"]'])
def test_a_sequence_that_is_none_is_no_place(sequence: str) -> None:
    assert not ignored(record("postgresql", 9), record("postgresql", 1, sequence=sequence))
