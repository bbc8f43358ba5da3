"""Random histories of a topic, columns that are added, retention and deaths, against a model of the topic in Python.

Each row says which record it comes from. So each time of a table tells which records it has, and that must be what a
reading of the model gives for the records up to some offsets: in the first table and, from the same records at the same
time, in those with further columns. A table that does not begin may only lack records that are gone.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.test_kafka_crashes import KEY
from tests.kafka.topics import PLACE, Run, add_partitions, delete_records, ends, new_topic, producer, spec_of, upper
from tests.storage.dying_appends import die_around
from tests.storage.ingestion_samples import errors, oks
from tidemark_persist import open_shard
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.storage.kafka import source as kafka_source
from tidemark_replica.storage.kafka.stop import RECORDS_GONE

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
FIRST = (Column("id", BIGINT), Column("name", STRING))
ADDED = ("vip", "more")
KEYS = 5


@dataclass
class Topic:
    """A topic, and the values and keys of its records by partition and offset."""

    kafka: Broker
    draw: random.Random
    name: str
    partitions: int = 2
    records: dict[tuple[int, int], tuple[str, Any]] = field(default_factory=dict)
    written: int = 0
    first: dict[int, int] = field(default_factory=dict)

    def write(self) -> None:
        writer = producer(self.kafka)
        for _ in range(self.draw.randint(1, 8)):
            self.written += 1
            key, names = f"{self.written % KEYS}", self.draw.sample([*ADDED, "nobodys"], self.draw.randint(0, 3))
            value: Any = {"id": self.written, **{n: f"{n}{self.written}" for n in names}}
            value = self.draw.choices([value, None, "bad"], [8, 1, 1])[0]
            data = b"{bad" if value == "bad" else json.dumps(value) if value is not None else None
            # a key stays in its partition, also when others are added
            writer.produce(self.name, data, key, self.written % KEYS % 2, on_delivery=self._note(key, value))
        assert writer.flush(60) == 0

    def write_to_all(self) -> None:
        """Records of keys that no other partition has."""
        writer = producer(self.kafka)
        for partition in range(2, self.partitions):
            self.written += 1
            value, key = {"id": self.written, "vip": "late"}, f"of{partition}"
            writer.produce(self.name, json.dumps(value), key, partition, on_delivery=self._note(key, value))
        assert writer.flush(60) == 0

    def _note(self, key: str, value: Any) -> Any:
        def note(error: Any, record: Any) -> None:
            assert error is None
            self.records[(record.partition(), record.offset())] = (key, value)

        return note

    def grow(self) -> None:
        self.partitions += 1
        add_partitions(self.kafka, self.name, self.partitions)

    def forget(self, before: dict[int, int]) -> None:
        """Removes some records with offsets below these."""
        partition = self.draw.randrange(2)
        if (end := before.get(partition, 0)) > 0:
            self.first[partition] = self.draw.randint(1, end)
            delete_records(self.kafka, self.name, partition, self.first[partition])

    def rows(self, table: KafkaTable, cut: dict[int, int]) -> Counter[tuple[Any, ...]]:
        """The rows of the records before the cut."""
        found: dict[Any, tuple[Any, ...]] = {}
        for (p, o), (key, value) in sorted(self.records.items()):
            if o >= cut.get(p, 0) or value == "bad":
                continue
            by = (p, o) if table.envelope == "none" else key
            values = tuple((value or {}).get(column.name) for column in table.columns)
            if table.envelope == "none":
                found[by] = (*values, p, o)
            elif value is None:
                found.pop(by, None)
            else:
                found[by] = (key, *values, p, o)
        return Counter(found.values())

    def letters(self, cut: dict[int, int]) -> set[tuple[int, int]]:
        return {(p, o) for (p, o), (_, value) in self.records.items() if value == "bad" and o < cut.get(p, 0)}


class History:
    def __init__(self, kafka: Broker, root: Path, seed: int, envelope: str) -> None:
        self.kafka, self.root, self.draw = kafka, root, random.Random(seed)
        self.topic = Topic(kafka, self.draw, new_topic(kafka, 2))
        by_key: dict[str, Any] = {"envelope": envelope, "key_format": "text", "key_columns": KEY}
        table = KafkaTable("t", self.topic.name, "json", FIRST, PLACE, on_bad_record="deadLetter")
        self.tables = [table if envelope == "none" else replace(table, **by_key)]
        self.last, self.done = 1, Counter[str]()
        self.cuts: dict[tuple[str, int], dict[int, int]] = {}
        """The offsets that a table had at a time, as its source said."""
        self.topic.write()
        self.run = self.opened()

    def opened(self) -> Run:
        return Run(self.root, spec_of(self.kafka, *self.tables, max_bytes_per_tick=300))

    def play(self, steps: int) -> None:
        moves = [self.topic.write] * 4 + [self.tick] * 4 + [self.die] * 3 + [self.grow] * 3
        moves += [self.drop, self.restart, self.partition, self.forget]
        for _ in range(steps):
            move = self.draw.choice(moves)
            move()
            self.done[move.__name__] += 1
        self.grow()
        self.topic.write()
        self.settle()
        self.check()
        for table in self.begun():
            everything = ends(self.kafka.address, self.topic.name)
            assert Counter(oks(self.root, table.name)) == self.topic.rows(table, everything), table.name
        self.run.close()

    def begun(self) -> list[KafkaTable]:
        return [table for table in self.tables if table.name in self.run.source._bound]

    def settle(self) -> None:
        """All tables have all records, but those that cannot begin."""

        def is_done() -> bool:
            everything = ends(self.kafka.address, self.topic.name)
            bound, gone = self.run.source._bound, self.run.source.stop_reasons()
            return all(t.name in gone or (t.name in bound and bound[t.name].offsets == everything) for t in self.tables)

        for _ in range(300):
            if is_done():
                return
            self.ticked()
        raise AssertionError(f"{self.run.source.warning()} {self.run.source.stop_reasons()} {self.run.source._bound}")

    def ticked(self) -> None:
        self.run.tick()
        self.note()

    def note(self) -> None:
        for name, position in self.run.source._bound.items():
            self.cuts[(name, self.run.at)] = dict(position.offsets)

    def tick(self) -> None:
        for _ in range(self.draw.randint(1, 3)):
            self.ticked()
        self.check()

    def restart(self) -> None:
        self.run.close()
        self.run = self.opened()
        self.run.at = max(self.run.at, max((at for _, at in self.cuts), default=0))
        self.note_recovered()
        self.check()

    def note_recovered(self) -> None:
        """A binding that was minted before a death counts."""
        for name, position in self.run.source._bound.items():
            self.cuts[(name, upper(self.root, name) - 1)] = dict(position.offsets)

    def die(self) -> None:
        """The process dies in one of the next ticks, before or after any append; or it does not."""
        with pytest.MonkeyPatch.context() as moment:
            die_around(moment, self.draw.randint(1, 17))
            try:
                for _ in range(3):
                    self.ticked()
            except KeyboardInterrupt:
                self.done["died"] += 1
                self.restart()
        self.check()

    def grow(self) -> None:
        """Columns are added. A table that cannot begin goes."""
        self.tables = [t for t in self.tables if t.name not in self.run.source.stop_reasons()]
        last = max(self.tables, key=lambda table: len(table.added))
        if len(last.added) < len(ADDED):
            name = ADDED[len(last.added)]
            self.last += 1
            columns = (*last.columns, Column(name, STRING))
            self.tables.append(replace(last, name=f"t.{self.last}", columns=columns, added=(*last.added, name)))
        self.restart()

    def drop(self) -> None:
        """The first table goes, as soon as the next one has begun."""
        if len(self.begun()) > 1:
            self.tables = self.tables[1:]
            self.restart()

    def partition(self) -> None:
        if self.topic.partitions < 4:
            self.topic.grow()
            self.topic.write_to_all()

    def forget(self) -> None:
        """Retention takes what all tables that have begun have read."""
        bound = [position.offsets for position in self.run.source._bound.values()]
        if bound:
            least = {p: min(offsets.get(p, 0) for offsets in bound) for p in range(2)}
            self.topic.forget(least)

    def times(self, table: str) -> Iterator[int]:
        state = open_shard(f"{self.root}/{table}").state()
        yield from (at for name, at in self.cuts if name == table and state.since <= at < state.upper)

    def check(self) -> None:
        """Each table at each readable time, from the last times."""
        for name, why in self.run.source.stop_reasons().items():
            by_key = self.tables[0].envelope != "none"
            may_go = bool(self.topic.first) or (by_key and self.topic.partitions > 2)
            assert (why.partition(":")[0], may_go) == (RECORDS_GONE, True), (name, why)
            self.done["gone"] += 1
        for table in self.begun():
            for at in sorted(self.times(table.name))[-4:]:
                cut = self.cuts[(table.name, at)]
                assert Counter(oks(self.root, table.name, at)) == self.topic.rows(table, cut), (table.name, at)
                letters = oks(self.root, f"t_dead_letter{table.name[1:]}", at)
                assert {row[:2] for row in letters} == self.topic.letters(cut), (table.name, at)
                first = self.cuts.get((self.tables[0].name, at))
                assert first in (None, cut), "both have the same records"
            assert errors(self.root, table.name) == {}
            if table.added:
                assert (table.name, open_shard(f"{self.root}/{table.name}").state().since) in self.cuts


def played(kafka: Broker, root: Path, monkeypatch: pytest.MonkeyPatch, seed: int, steps: int) -> Counter[str]:
    monkeypatch.setattr(kafka_source, "LOOK_SECONDS", 0.0)
    history = History(kafka, root, seed, ["none", "upsert"][seed % 2])
    try:
        history.play(steps)
    finally:
        history.run.close()
    return history.done


@pytest.mark.parametrize("seed", range(4))
def test_oracle_histories_of_columns(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    played(kafka, tmp_path, monkeypatch, seed, 14)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 34))
def test_oracle_longer_histories_of_columns(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    played(kafka, tmp_path, monkeypatch, seed, 40)
