"""The topic of Debezium's transactions: which have begun, which have ended, and with how many events.

    ──── passed ──────────────┤ bound   pending, in the order in which they began
    B5 E5 B6 E6 B5 E5 B6 E6 B7│E7 B8 E8 B9
          └ the connector has started again: what was passed is passed over

The topic has one partition, so an offset (`rank`) tells which of two transactions came first. The position of END in
the database's log tells the same of transactions that come again: `watermark` is that of the last one that bindings
have, and all that end there or before are passed. Everything else follows from the records of the topic, so another
process comes to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from time import monotonic

from confluent_kafka import Consumer

from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.reader import TopicReader
from tidemark_replica.storage.kafka.stop import BrokersAway
from tidemark_replica.storage.kafka.topics import Topic, Topics
from tidemark_replica.storage.kafka.transactions.avro_metadata import Boundaries
from tidemark_replica.storage.kafka.transactions.metadata import Boundary, NotUnderstood
from tidemark_replica.storage.schema_registry import RegistryAway, SchemaRegistry
from tidemark_replica.storage.staged_bindings import Entry

PENDING_MAX = 50_000
"""Transactions that may be pending; the topic is read on when there are fewer."""
PASSED_MAX = 100_000
"""Transactions that were passed and are remembered, for events that do not say which commit came before."""
BEFORE_RECORDS = 20_000
"""Records before the bound offset that are read after a start."""
WAIT_SECONDS = 0.2
BYTES_PER_READ = 16 << 20
_TOPIC, _OFFSET = ("", "transactions/topic"), ("", "transactions/offset")
_WATERMARK, _MS = ("", "transactions/watermark"), ("", "transactions/ms")
_ANEW = "Give the connector another topic.prefix, and create another DataSource of its topics"


class TransactionsUnreadable(BrokersAway):
    """The topic of transactions cannot be read; nothing is bound. The message says why."""


@dataclass
class PendingTransaction:
    """A transaction that no binding has. `rank`: the offset of its first BEGIN, `ended_rank`: of its first END.
    `counts`: of events by table, None before its end. `end`: the position of its commit, `ms`: the time of it.
    `is_undecided`: the connector may have begun again within it, and then counted from there. `is_again`: one of the
    same number was passed. `follows`: the transaction of the record before its first BEGIN, empty where that is not
    known."""

    id: str
    rank: int
    seen_at: float
    follows: str = ""
    is_again: bool = False
    counts: Mapping[str, int] | None = None
    ended_rank: int | None = None
    end: int = 0
    ms: int = 0
    is_undecided: bool = False


class TransactionLog:
    """Reads the topic. `pending`: by id, in order of rank; `passed`: the positions of commits of those that bindings
    have."""

    def __init__(
        self, topic: str, open_consumer: Callable[[], Consumer], registry: SchemaRegistry | None = None
    ) -> None:
        self.topic, self._open_consumer, self._boundaries_of = topic, open_consumer, Boundaries(registry)
        self.pending: dict[str, PendingTransaction] = {}
        self.passed: dict[str, int] = {}
        self._passed_counts: dict[str, int] = {}
        """Hashes of what END counted first, of transactions in `passed`."""
        self._reader: TopicReader | None = None
        self._id, self._bound, self._is_bound = "", 0, False
        self.watermark, self._ms = 0, 0
        self._begins_behind: int | None = None
        """For a source that begins: all transactions whose END is before this offset are passed."""
        self._read_to: int | None = None
        """The end of the topic when it was opened, None once all records before it are read."""
        self._ended = 0
        self._before = self._came_from = ""
        """The transaction of the record before; the second one if it is an END that counts the same as the first one
        did."""

    @property
    def is_full(self) -> bool:
        return len(self.pending) >= PENDING_MAX

    @property
    def problem(self) -> str:
        """The reason why no records come; empty while they do."""
        return self._reader.problem if self._reader is not None else ""

    @property
    def is_read(self) -> bool:
        """Whether all is read that was there when the topic was opened, or as many transactions as may be pending."""
        return self._reader is not None and (self._read_to is None or self.is_full)

    @property
    def last_end(self) -> int:
        """Where the last transaction ended of which END is read."""
        return max(self.watermark, self._ended)

    @property
    def is_settled(self) -> bool:
        """Whether it is known which transactions had ended when the source began."""
        return self._begins_behind is None

    def joined(self, passing: Collection[str]) -> int:
        """The watermark of a binding that has the transactions `passing`."""
        return max([self.watermark, *(self.pending[id].end for id in passing)])

    def resume(self, entries: Mapping[Entry, str]) -> None:
        """Goes on behind the bindings so far."""
        self.close()
        self._take_entries(entries)

    def entries(self, passing: Collection[str]) -> dict[Entry, str | None]:
        """The entries of a binding that has the transactions `passing`."""
        assert self._reader is not None
        left = next((one.rank for id, one in self.pending.items() if id not in passing), self._reader.offsets[0])
        ms = max([self._ms, *(self.pending[id].ms for id in passing)])
        return {_TOPIC: self._id, _OFFSET: str(left), _WATERMARK: str(self.joined(passing)), _MS: str(ms)}

    def confirm(self, passing: Collection[str], entries: Mapping[Entry, str]) -> None:
        """A binding has the transactions, and the entries."""
        for id in passing:
            one = self.pending[id]
            self._pass(id, one.end, one.counts or {})
        self._take_entries(entries)

    def read(self, topics: Topics, seconds: float) -> None:
        """Reads on. Raises TransactionsUnreadable, BrokersAway."""
        if self._reader is None:
            self._begin(topics)
        assert self._reader is not None
        if self.is_full:
            return
        try:
            for records in self._reader.read(BYTES_PER_READ, WAIT_SECONDS, seconds):
                now = monotonic()
                found = self._boundaries_of([record.value() for record in records])
                for record, boundary in zip(records, found, strict=True):
                    self._add(record.offset(), boundary, now)
                if self.is_full:
                    break
        except TableStopped as error:
            raise TransactionsUnreadable(f"{error.reason}: topic of transactions: {error}") from None
        except RegistryAway as error:
            raise TransactionsUnreadable(f"RegistryAway: topic of transactions: {error}") from None
        behind, at = self._begins_behind, self._reader.offsets[0]
        if self._read_to is not None and at >= self._read_to:
            self._read_to = None
        if behind is not None and at >= behind and (self.watermark or not self._reader.begins[0]):
            self._begins_behind = None

    def check(self, topics: Topics) -> Topic:
        """The topic, if it is the one that was read. Raises TransactionsUnreadable, BrokersAway."""
        found = topics.describe([self.topic])[self.topic]
        if isinstance(found, TableStopped):
            raise TransactionsUnreadable(f"{found.reason}: topic of transactions: {found}")
        if len(found.partitions) != 1:
            text = f"topic {self.topic} has {len(found.partitions)} partitions; the order of transactions needs one"
            how = "Create the topic with one and, once a transaction has ended there, another DataSource"
            raise TransactionsUnreadable(f"Partitions: {text}. {how}")
        if self._id and found.id != self._id:
            text = f"topic {self.topic} was created anew: its id is {found.id}, and was {self._id}"
            how = "Create another DataSource once a transaction has ended there"
            raise TransactionsUnreadable(f"TopicReplaced: {text}. {how}")
        self._id = found.id
        return found

    def close(self) -> None:
        """The next read begins at what is bound."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self.pending, self.passed, self._passed_counts = {}, {}, {}
        self._before = self._came_from = ""
        self._begins_behind, self._read_to, self._ended = None, None, 0
        self._id = self._id if self._is_bound else ""

    def _take_entries(self, entries: Mapping[Entry, str]) -> None:
        self._is_bound = _WATERMARK in entries
        if self._is_bound:
            self._id, self._bound = entries[_TOPIC], int(entries[_OFFSET])
            self.watermark, self._ms = int(entries[_WATERMARK]), int(entries[_MS])

    def _begin(self, topics: Topics) -> None:
        described = self.check(topics)
        first, end = topics.first(described)[0], topics.ends(described)[0]
        if not self._is_bound:
            self._bound, self._begins_behind, self.watermark, self._ms = end, end, 0, 0
        elif not first <= self._bound <= end:
            text = f"the next record of topic {self.topic}, {self._bound}, is none of those from {first} to {end}"
            raise TransactionsUnreadable(f"OffsetGone: {text}. Create another DataSource")
        at = max(first, self._bound - BEFORE_RECORDS)
        self._reader, self._read_to = TopicReader(self._open_consumer(), self.topic, {0: at}), end

    def _add(self, offset: int, boundary: Boundary | NotUnderstood | None, now: float) -> None:
        if isinstance(boundary, NotUnderstood):
            why = f"{boundary}. Only PostgreSQL's connector is known"
            text = f"the record at offset {offset} of topic {self.topic}: {why}"
            raise TransactionsUnreadable(f"RecordUnknown: {text}. {_ANEW}")
        if boundary is not None:
            if boundary.counts is None:
                self._take_begin(boundary, offset, now)
                self._came_from = ""
            else:
                is_same = self._is_same(boundary.id, boundary.counts)
                self._take_end(boundary, boundary.counts, offset, now)
                self._came_from = boundary.id if is_same else ""
            self._before = boundary.id

    def _take_begin(self, boundary: Boundary, offset: int, now: float) -> None:
        one = self.pending.get(boundary.id)
        if one is None:
            self.pending[boundary.id] = PendingTransaction(
                boundary.id, offset, now, self._before, boundary.id in self.passed
            )
        elif not self._is_whole_again(one):
            one.is_undecided, one.counts = True, None

    def _take_end(self, boundary: Boundary, counts: Mapping[str, int], offset: int, now: float) -> None:
        id, end = boundary.id, boundary.position
        if self._begins_behind is not None:
            self.watermark, self._ms = max(self.watermark, end), max(self._ms, boundary.ms)
        if end <= self.watermark:
            if boundary.ms > self._ms:
                text = f"transaction {id} ended at position {end}, before those that are bound, but at a later time"
                raise TransactionsUnreadable(f"LogReplaced: topic {self.topic}: {text}. {_ANEW}")
            self._pass(id, end, counts)
            return
        self._ended = max(self._ended, end)
        one = self.pending.get(id)
        if one is None:  # its BEGIN is not there, so its events may have been counted from anywhere
            one = self.pending[id] = PendingTransaction(id, offset, now, is_undecided=True)
        if one.counts is None:
            one.counts, one.end, one.ms = counts, end, boundary.ms
            one.ended_rank = offset if one.ended_rank is None else one.ended_rank
        elif (one.counts, one.end) != (counts, end):
            one.is_undecided = True

    def _is_whole_again(self, one: PendingTransaction) -> bool:
        """Whether the connector writes the transaction again from its begin: it has just written the one before it,
        with as many events as then. Otherwise it may have begun again within it."""
        return bool(self._came_from) and self._came_from == one.follows

    def _is_same(self, id: str, counts: Mapping[str, int]) -> bool:
        """Whether END counts events, and the same as the first END of the transaction."""
        one = self.pending.get(id)
        if one is not None and one.counts is not None:
            return bool(counts) and one.counts == counts
        return bool(counts) and self._passed_counts.get(id) == _hash(counts)

    def _pass(self, id: str, end: int, counts: Mapping[str, int]) -> None:
        self.pending.pop(id, None)
        self.passed.pop(id, None)
        self.passed[id] = end
        self._passed_counts.setdefault(id, _hash(counts))
        while len(self.passed) > PASSED_MAX:
            oldest = next(iter(self.passed))
            del self.passed[oldest], self._passed_counts[oldest]


def _hash(counts: Mapping[str, int]) -> int:
    return hash(frozenset(counts.items()))
