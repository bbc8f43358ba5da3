"""The records that a connector of Debezium writes for a log of transactions, with transaction metadata: the shapes are
those that Debezium 3.2 wrote of PostgreSQL, with its JSON converter. It may die anywhere, and begins again somewhat
earlier.

    events of transaction 728   ids 728:<position>, orders from 1, in each table and in all
    topic of transactions       BEGIN 728:<first position>, END 728:<position of commit> with the numbers of events
    begun again in the middle   BEGIN comes again, and orders and numbers count from there, or go on

What it writes reaches each partition in order, and partitions at different times (`deliver`). Where it dies, what was
not delivered is lost, and it begins again there or before.
"""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.avro.samples import written
from tests.kafka.broker import Broker
from tests.kafka.debezium.avro_events import COLLECTION, envelope, event_of, nullable, record
from tests.kafka.topics import SECONDS, producer
from tests.schema_registry.registry import Registry, framed
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaTable

SCHEMAS = {
    "key": record("Key", {"name": "id", "type": "long"}),
    "value": envelope({"name": "id", "type": "long"}, nullable("string", "name"), nullable("string", "vip")),
    "end-key": record("TransactionMetadataKey", {"name": "id", "type": "string"}),
    "end": record(
        "TransactionMetadataValue",
        {"name": "status", "type": "string"},
        {"name": "id", "type": "string"},
        nullable("long", "event_count"),
        nullable({"type": "array", "items": COLLECTION}, "data_collections"),
        {"name": "ts_ms", "type": "long"},
        namespace="io.debezium.connector.common",
    ),
}
"""The schemas that a converter registers: of keys and values, of tables and of transactions."""
Rows = dict[str, dict[int, str]]
"""By table, the name of each key."""


@dataclass(frozen=True)
class Change:
    """A change of a row: `after` None where the row goes."""

    table: str
    id: int
    after: str | None


@dataclass
class Upstream:
    """A database with its log. `states`: the contents after each number of transactions."""

    tables: Sequence[str]
    transactions: list[list[Change]] = field(default_factory=list)
    states: list[Rows] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states.append({name: {} for name in self.tables})

    def commit(self, *changes: Change) -> None:
        rows = {name: dict(of) for name, of in self.states[-1].items()}
        for change in changes:
            rows[change.table].pop(change.id, None)
            if change.after is not None:
                rows[change.table][change.id] = change.after
        self.transactions.append(list(changes))
        self.states.append(rows)

    def commit_random(self, draw: random.Random, changes_max: int = 12, keys: int = 8) -> None:
        now, changes = {name: dict(of) for name, of in self.states[-1].items()}, []
        for at in range(draw.randrange(1, changes_max)):
            table, id = draw.choice(self.tables), draw.randrange(keys)
            after = None if id in now[table] and draw.random() < 0.3 else f"{len(self.transactions)}.{at}"
            now[table] = {k: v for k, v in now[table].items() if k != id} | ({} if after is None else {id: after})
            changes.append(Change(table, id, after))
        self.commit(*changes)


@dataclass(frozen=True)
class Message:
    """One record, without its partition. `at`: the transaction and the change of it."""

    topic: str
    key: Any
    value: Any
    at: tuple[int, int]


class Connector:
    """Writes the log into topics `<prefix>.public.<table>` and `<prefix>.transaction`. `source`: fields of the events'
    source that are others than PostgreSQL's. `registry`: where it registers the schemas of what it writes in Avro."""

    def __init__(
        self,
        kafka: Broker,
        prefix: str,
        upstream: Upstream,
        partitions: int,
        schemas: bool = False,
        registry: Registry | None = None,
        **source: Any,
    ) -> None:
        self._ids = {} if registry is None else {kind: registry.register(kind, of) for kind, of in SCHEMAS.items()}
        self._upstream, self._prefix, self._partitions, self._source = upstream, prefix, partitions, source
        self._schemas = schemas
        self._writer = producer(kafka, **{"max.in.flight": 1})
        self._kafka = kafka
        self._messages = self._from(0, 0)
        self._last = (0, 0)
        self._queues: dict[tuple[str, int], deque[Message]] = {}
        self._counted: dict[tuple[int, int], Counter[str]] = {}
        """By transaction and change, the events of each table before it: what Connect stores with an offset."""
        self._refused: list[tuple[int, int]] = []
        """Where messages were that the broker refused, since the connector began."""
        self.left_out: set[tuple[str, int]] = set()
        """Tables and keys whose events a transformation leaves out."""

    def topic(self, table: str) -> str:
        return f"{self._prefix}.public.{table}"

    @property
    def transaction_topic(self) -> str:
        return f"{self._prefix}.transaction"

    def send(self, count: int) -> int:
        """Writes at most so many messages, and delivers all; returns how many there were."""
        sent = self.queue(count)
        for partition in list(self._queues):
            self.deliver(partition, len(self._queues[partition]))
        return sent

    def queue(self, count: int) -> int:
        """Writes at most so many messages, which are not delivered yet; returns how many there were."""
        sent = 0
        while sent < count and (message := next(self._messages)) is not None:
            partition = 0 if message.topic == self.transaction_topic else message.key["id"] % self._partitions
            self._queues.setdefault((message.topic, partition), deque()).append(message)
            self._last, sent = message.at, sent + 1
        return sent

    def deliver(self, to: tuple[str, int], count: int) -> None:
        """Delivers at most so many messages to a partition."""
        for _ in range(min(count, len(self._queues[to]))):
            self._write(self._queues[to].popleft(), to[1])
        assert self._writer.flush(SECONDS) == 0

    def refuse(self, to: tuple[str, int]) -> Message:
        """The broker refuses the next message to a partition of a table's topic; it is not written."""
        message = self._queues[(self.topic(to[0]), to[1])].popleft()
        self._refused.append(message.at)
        return message

    def refuse_some(self, draw: random.Random) -> None:
        for (topic, partition), queue in sorted(self._queues.items()):
            if queue and topic != self.transaction_topic and draw.random() < 0.5:
                self.refuse((topic.rpartition(".")[2], partition))

    def deliver_some(self, draw: random.Random) -> None:
        for to in draw.sample(sorted(self._queues), len(self._queues)):
            self.deliver(to, draw.choice([0, 0, 1, 3, 30]))

    def send_all(self) -> None:
        while self.send(1_000):
            pass

    def restart(self, transaction: int, change: int = 0, goes_on: bool = False) -> None:
        """Dies, and begins again at a change of a transaction. `goes_on`: orders do where it is in the middle."""
        self._queues.clear()
        self._refused.clear()
        self._messages = self._from(transaction, change, goes_on)

    def restart_somewhere(self, draw: random.Random) -> None:
        """Dies, and begins again at the first message that was not delivered or was refused, or somewhat earlier."""
        waiting = [queue[0].at for queue in self._queues.values() if queue]
        least = min([*waiting, *self._refused], default=self._last)
        number = max(0, least[0] - draw.choice([0, 0, 1, 3]))
        length = len(self._upstream.transactions[number]) if self._upstream.transactions else 0
        change = draw.randrange((least[1] if number == least[0] else length) + 1)
        self.restart(number, draw.choice([0, change]), draw.random() < 0.3)

    def widen(self, partitions: int) -> None:
        """Writes to so many partitions from now on."""
        self._partitions = partitions
        for name in self._upstream.tables:
            while True:
                self._writer = producer(self._kafka, **{"max.in.flight": 1})
                topics = self._writer.list_topics(self.topic(name), timeout=SECONDS).topics
                if len(topics[self.topic(name)].partitions) >= partitions:
                    break

    def _from(self, transaction: int, change: int, goes_on: bool = False) -> Iterator[Message | None]:
        """The messages from there on; None where there is nothing more yet."""
        while True:
            if transaction >= len(self._upstream.transactions):
                yield None
                continue
            yield from self._transaction(transaction, change, goes_on)
            transaction, change = transaction + 1, 0

    def _transaction(self, number: int, first: int, goes_on: bool) -> Iterator[Message]:
        changes, id = self._upstream.transactions[number], 700 + number
        begin, end = f"{id}:{place(number, 0)}", f"{id}:{place(number, len(changes))}"
        begun = {"status": "BEGIN", "id": begin, "event_count": None, "data_collections": None, "ts_ms": number}
        yield Message(self.transaction_topic, {"id": begin}, begun, (number, 0))
        counts = self._counted[number, first].copy() if goes_on and first else Counter[str]()
        self._counted[number, first] = counts.copy()
        for at, change in enumerate(changes[first:], first):
            counts[change.table] += 1
            self._counted[number, at + 1] = counts.copy()
            block = {"id": f"{id}:{place(number, at)}", "total_order": counts.total()}
            block["data_collection_order"] = counts[change.table]
            value = {
                "before": None,
                "after": None if change.after is None else self._row(change),
                "op": self._op(change),
            }
            key, origin = {"id": change.id}, self._origin(number, at, change.table)
            if (change.table, change.id) in self.left_out:
                continue
            yield Message(self.topic(change.table), key, value | {"source": origin, "transaction": block}, (number, at))
            if change.after is None:
                yield Message(self.topic(change.table), key, None, (number, at))
        each = [{"data_collection": f"public.{name}", "event_count": count} for name, count in counts.items()]
        ended = {"status": "END", "id": end, "event_count": counts.total(), "data_collections": each, "ts_ms": number}
        yield Message(self.transaction_topic, {"id": end}, ended, (number, len(changes)))

    def _origin(self, number: int, at: int, table: str) -> dict[str, Any]:
        own = place(number, at)
        last = str(place(number - 1, len(self._upstream.transactions[number - 1]))) if number else None
        found = {"connector": "postgresql", "name": self._prefix, "db": "shop", "schema": "public", "table": table}
        found |= {"ts_ms": number, "snapshot": "false", "lsn": own, "sequence": json.dumps([last, str(own)])}
        return found | self._source

    def _row(self, change: Change) -> dict[str, Any]:
        return {"id": change.id, "name": change.after, "vip": f"v{change.after}"}

    def _op(self, change: Change) -> str:
        return "d" if change.after is None else "u"

    def _write(self, message: Message, partition: int) -> None:
        key, value = (self._wrapped(each) for each in (message.key, message.value))
        if self._ids:
            key, value = self._framed(message)
        self._writer.produce(message.topic, value, key, partition)

    def _framed(self, message: Message) -> tuple[bytes, bytes | None]:
        """The key and the value in Avro."""
        if message.topic == self.transaction_topic:
            key = framed(self._ids["end-key"], written(SCHEMAS["end-key"], message.key))
            return key, framed(self._ids["end"], written(SCHEMAS["end"], message.value))
        key = framed(self._ids["key"], written(SCHEMAS["key"], message.key))
        return key, event_of(self._ids["value"], SCHEMAS["value"], message.value)

    def _wrapped(self, value: Any) -> bytes | None:
        if value is None:
            return None
        return json.dumps({"schema": {"type": "struct"}, "payload": value} if self._schemas else value).encode()


def pinned_row(*names: str) -> str:
    """A schema of events whose rows have these texts."""
    row = record("Value", *(nullable("string", name) for name in names))
    return json.dumps(record("Envelope", nullable(row, "after")))


def avro_table(name: str, topic: str) -> KafkaTable:
    """A table of such events in Avro, with the column name."""
    schema, key = KafkaSchema(pinned_row("name")), KafkaSchema(json.dumps(SCHEMAS["key"]))
    by_key: dict[str, Any] = {"envelope": "debezium", "key_format": "avro", "key_schema": key, "key_framed": True}
    return KafkaTable(name, topic, "avro", (), schema=schema, framed=True, marked_in_avro=True, **by_key)


def place(transaction: int, change: int) -> int:
    """The position of a change in the log."""
    return 10_000 * (transaction + 1) + change
