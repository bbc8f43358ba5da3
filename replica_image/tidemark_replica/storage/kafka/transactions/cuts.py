"""Whole transactions, and up to where the records of each table may be bound.

Only what the topics say counts, never how long something takes:

    whole       END is there, and each table has as many events as END says
    undecided   the connector began again within the transaction, so END may count from there alone. It is whole once
                each partition of each table has an event of a later transaction: events of a partition are in order.
                Positions say which events came again
    lost        fewer events than END says, and each partition has an event of a later transaction: none will come.
                `onGap: skip` takes the transaction without them. Events behind later ones are lost, too: a batch of the
                producer failed, the next one did not, and Connect wrote them again. Events of an undecided transaction
                may come behind its binding, which remembers the positions of the others (`undecided.py`)

Transactions are bound in their order, up to the first one that is not whole. A table that begins, or goes on after it
stood still, takes what ended before (`joined`) record by record.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic

from confluent_kafka import Consumer

from tidemark_protocol.plan.successors import earlier_names
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.followed_topic import FollowedTopic
from tidemark_replica.storage.kafka.positions import Position
from tidemark_replica.storage.kafka.topics import Topics
from tidemark_replica.storage.kafka.transactions.fronts import Fronts
from tidemark_replica.storage.kafka.transactions.log import PendingTransaction, TransactionLog
from tidemark_replica.storage.kafka.transactions.metadata import is_of, prefix_of
from tidemark_replica.storage.kafka.transactions.read_ahead import EventRun, Fate, FateOf, Tally
from tidemark_replica.storage.kafka.transactions.undecided import Positions, TablePositions, UndecidedBound
from tidemark_replica.storage.schema_registry import SchemaRegistry
from tidemark_replica.storage.staged_bindings import Entry

WARN_SECONDS = 10.0
"""The time that a transaction is pending before a warning says so."""
_MEMBERS, _UNDECIDED = ("", "transactions/tables"), ("", "transactions/undecided")
_REFUSED = "behind later ones, as a broker had refused a batch of Kafka Connect before"
_FORGOTTEN = "they came again or are lost ones, and it has too many to remember which of them were there"
UNDECIDED = "Kafka Connect began again within it, so its END does not say how many events it has"


@dataclass(frozen=True)
class _Hold:
    """A hold: the transaction that waits, the reason why nothing more is bound, and since when."""

    id: str
    reason: str
    why: str
    since: float


class TransactionCuts:
    """The transactions of one connector. `tables`: those that follow it, by name."""

    def __init__(
        self,
        topic: str,
        tables: Mapping[str, FollowedTopic],
        open_consumer: Callable[[], Consumer],
        size_max: int,
        registry: SchemaRegistry | None = None,
    ) -> None:
        self.log = TransactionLog(topic, open_consumer, registry)
        self._tables, self._size_max, self._prefix = tables, size_max, prefix_of(topic)
        self._hold: _Hold | None = None
        self.members: frozenset[str] = frozenset()
        """The tables that have all transactions that are bound. Any other one joins anew."""
        self.passing: dict[str, PendingTransaction] = {}
        """The transactions that the next binding has, in their order."""
        self.problem = ""
        """The reason why the topic of transactions cannot be read; empty while it can."""
        self.lost: dict[str, list[str]] = {}
        """By table, the lost events that the next binding passes over (`onGap: skip`): a text for each transaction."""
        self._undecided, self._seen = UndecidedBound(), dict[str, Positions]()
        """Transactions that were bound undecided, and the positions of events of those that the next binding has."""
        self._names: Mapping[str, str] = {}
        """The tables' names in bindings, by their own."""
        self._earlier = {name: earlier_names(name) for name in tables}
        for name, table in tables.items():
            table.recall = partial(self._recall, name)

    def choose(self, bound: Mapping[str, Position], topics: Topics, is_complete: bool) -> dict[str, dict[int, int]]:
        """Chooses the transactions of the next binding. `bound`: the positions of tables that are not stopped.
        `is_complete`: these are all; otherwise no transaction is bound. Returns, of each table, the cut. Raises
        BrokersAway."""
        self.passing, self.lost, self._seen, self.problem = {}, {}, {}, ""
        hold = self._chosen(bound, topics) if is_complete else None
        same = self._hold is not None and hold is not None and (self._hold.id, self._hold.why) == (hold.id, hold.why)
        self._hold = self._hold if same else hold
        cuts: dict[str, dict[int, int]] = {}
        for name, position in bound.items():
            if (ahead := self._tables[name].ahead) is None:
                continue
            cuts[name] = ahead.cut(self._tables[name].offsets, self.fate_of(name, position))
            if self._is_skipped(name):
                late = ahead.late(cuts[name], partial(self._is_late, name))
                for run in late:
                    self._lose(name, f"transaction {run.id}: {self._describe_late_run(name, run)}")
        return cuts

    def fate_of(self, name: str, position: Position) -> FateOf:
        """The fates of runs of a table."""
        late = Fate.DROPPED if self._is_skipped(name) else Fate.WAITS

        def fate(run: EventRun, top: int) -> Fate:
            log, before = self.log, run.commit_before
            if self._is_late(name, run):
                return late
            if not run.id or (before is not None and before < position.joined):
                return Fate.TAKEN
            if before is not None and before < log.watermark:
                return Fate.DROPPED
            if run.id in log.pending:
                if run.id not in self.passing:
                    return Fate.WAITS
                return Fate.TAKEN if log.pending[run.id].rank >= top else Fate.DROPPED
            if before is not None:
                return Fate.WAITS
            end = log.passed.get(run.id)
            if end is not None and run.position <= end:
                return Fate.TAKEN if end <= position.joined else Fate.DROPPED
            was_there = run.begin < position.history.get(run.partition, 0)
            return Fate.TAKEN if was_there and run.position <= position.joined else Fate.WAITS

        return fate

    def rank_of(self, run: EventRun) -> int:
        """See `RankOf`."""
        before, one = run.commit_before, self.log.pending.get(run.id)
        if before is not None and before < self.log.watermark:
            return -1
        if one is not None:  # without the commit before, this may be an event of one that was passed
            return -1 if one.is_again and before is None else one.rank
        return sys.maxsize if run.id and before is not None and before >= self.log.last_end else -1

    def first_of(self, run: EventRun) -> int | None:
        """The offset of the run's first record that counts: orders say which events of a transaction came again, unless
        it is undecided."""
        one = self.passing.get(run.id)
        return run.begin if one is None else run.first if one.is_undecided else run.fresh

    def needs(self, name: str) -> bool:
        """Whether the others wait for this table."""
        oldest = next(iter(self.log.pending.values()), None)
        if oldest is None or oldest.counts is None or (ahead := self._tables[name].ahead) is None:
            return False
        return oldest.is_undecided or ahead.count(oldest.id) < self._expected_events(oldest, name)

    @property
    def joined(self) -> int:
        """Where the last transaction ends that the next binding has."""
        return self.log.joined(self.passing)

    def entries(self, members: Mapping[str, Position]) -> dict[Entry, str | None]:
        """The entries of the next binding. `members`: the tables that take their part in it, and where they are then;
        a table that joins with it takes its transactions afterwards, record by record."""
        names = sorted(map(self._bound_as, members))
        found = self.log.entries(self.passing) | {_MEMBERS: json.dumps(names)}
        if self._seen:
            found[_UNDECIDED] = self._undecided.text_with([self._remembered(id, members) for id in self._seen])
        return found

    def resume(self, entries: Mapping[Entry, str], names: Mapping[str, str]) -> None:
        """Goes on behind the bindings so far. `names`: the tables' names there, by their own."""
        self._names = names
        self.restart()
        self.log.resume(entries)
        self._take_members(entries)
        self._undecided = UndecidedBound(entries.get(_UNDECIDED, ""))

    def confirm(self, entries: Mapping[Entry, str]) -> None:
        """A binding has what was chosen; `entries`: all that are bound."""
        self.log.confirm(self.passing, entries)
        if self._seen:
            self._undecided = UndecidedBound(entries[_UNDECIDED])
        self._take_members(entries)
        self.passing, self.lost, self._seen = {}, {}, {}

    def restart(self) -> None:
        """All clients were closed; the tables are read from their bound positions."""
        self.log.close()
        self.passing, self.lost, self._seen, self._hold, self.problem = {}, {}, {}, None, ""

    def long_wait(self) -> tuple[str, str]:
        """The reason and the text of what the tables wait for, if they do so for long; else both empty."""
        if self._hold is None or monotonic() - self._hold.since < WARN_SECONDS:
            return "", ""
        return self._hold.reason, f"transaction {self._hold.id} of topic {self.log.topic}: {self._hold.why}"

    def _chosen(self, bound: Mapping[str, Position], topics: Topics) -> _Hold | None:
        """Takes transactions in their order, up to the first one that is not whole. Returns why it is not."""
        ahead = {name: found for name in bound if (found := self._tables[name].ahead) is not None}
        if unread := sorted(bound.keys() - ahead.keys()):
            return _Hold("", "TransactionPending", f"table {unread[0]} is not read yet", monotonic())
        fates = {name: self.fate_of(name, at) for name, at in bound.items()}
        fronts = Fronts(ahead, fates, self.log.pending, self.rank_of)
        if fronts.unknown is not None:
            return self._unknown(*fronts.unknown)
        dropped = {name: 0 for name, one in ahead.items() if one.is_over}
        oldest, end = next(iter(self.log.pending.values()), None), self.log.watermark
        has_ended = oldest is not None and oldest.counts is not None
        tallies = {name: one.tally(self.rank_of) for name, one in ahead.items()} if has_ended else {}
        for one in self.log.pending.values():
            lost: dict[str, str] = {}
            reason, why = self._missing(one, tallies, topics, lost)
            if not why and one.end <= end:
                reason, why = "TransactionPending", "it ended before an earlier one, and nothing says which is right"
            if why:
                return _Hold(one.id, reason, why, monotonic())
            for name in dropped:  # these are read again, so not much more than a binding may have
                dropped[name] += ahead[name].bytes_of(one.id)
            if self.passing and any(size > self._size_max for size in dropped.values()):
                return None
            self.passing[one.id] = one
            if not fronts.chosen(one):
                del self.passing[one.id]
                if fronts.unknown is not None:
                    return self._unknown(*fronts.unknown)
                why = "events before its own are of a transaction whose END has not come"
                return _Hold(one.id, "TransactionPending", why, monotonic())
            for name, text in lost.items():
                self._lose(name, text)
            end = one.end
            if one.is_undecided:
                self._seen[one.id] = {name: self._positions(name, one.id) for name in ahead}
        return self._unknown(*fronts.beyond) if fronts.beyond is not None and not self.passing else None

    def _lose(self, name: str, why: str) -> None:
        self.lost.setdefault(name, []).append(why)

    def _is_skipped(self, name: str) -> bool:
        return self._tables[name].table.on_gap == "skip"

    def _remembered(self, id: str, members: Mapping[str, Position]) -> tuple[str, int, Positions]:
        """The entry of an undecided transaction in the next binding: its id, its end, and the positions in the tables
        that take it with this binding."""
        end = self.passing[id].end
        took = {name: seen for name, seen in self._seen[id].items() if name in members and members[name].joined < end}
        return id, end, {self._bound_as(name): seen for name, seen in took.items()}

    def _positions(self, name: str, id: str) -> TablePositions | None:
        table = self._tables[name]
        assert table.ahead is not None
        found = table.ahead.positions(id)
        return None if found is None else TablePositions(len(table.offsets), found)

    def _is_late(self, name: str, run: EventRun) -> bool:
        """Whether the run has an event of a transaction that was bound undecided with the table, without the event, or
        perhaps without it."""
        return bool(run.id) and run.first is not None and self._was_bound_with(name, run.id, run.position) is not None

    def _recall(self, name: str, id: str, partition: int, position: int) -> Sequence[int] | None:
        found = self._undecided_positions(name, id, position)
        return None if found is None else found.of(partition, len(self._tables[name].offsets))

    def _describe_position(self, name: str, partition: int, offset: int) -> str:
        """The place of a record of a table, for messages."""
        return f"partition {partition} of topic {self._tables[name].table.topic} at offset {offset}"

    def _is_known(self, name: str, run: EventRun) -> bool:
        return self._undecided_positions(name, run.id, run.position) is not None

    def _undecided_positions(self, name: str, id: str, position: int) -> TablePositions | None:
        bound_as = self._was_bound_with(name, id, position) or self._bound_as(name)
        return self._undecided.positions(bound_as, id, position)

    def _was_bound_with(self, name: str, id: str, position: int) -> str | None:
        """The table, or the one before it whose records it began with, with which the transaction was bound undecided;
        None where there is none."""
        names = map(self._bound_as, (name, *self._earlier[name]))
        return next((each for each in names if self._undecided.has(each, id, position)), None)

    def _describe_late_run(self, name: str, run: EventRun) -> str:
        """The reason why events that came after their transaction was bound cannot be taken."""
        where = self._describe_position(name, run.partition, run.first or run.begin)
        if self._is_known(name, run):
            return f"{where} has events of it that had not come when it was bound: they are {_REFUSED}"
        return f"{where} has events of it, which was bound: {_FORGOTTEN}"

    def _unknown(self, name: str, run: EventRun) -> _Hold:
        if self._is_late(name, run):
            how = f"Set onGap: skip of table {name} to go on without them, or remove the table"
            reason = "TransactionIncomplete" if self._is_known(name, run) else "TransactionUnclear"
            return _Hold(run.id, reason, f"{self._describe_late_run(name, run)}. {how}", monotonic())
        why = f"{self._describe_position(name, run.partition, run.begin)} has an event of it"
        why += " and its BEGIN or END has not come. Where retention removed it: set"
        why += " a longer retention.ms of the topic of transactions, and create another DataSource"
        return _Hold(run.id, "TransactionUnknown", why, monotonic())

    def _missing(
        self, one: PendingTransaction, tallies: Mapping[str, Tally], topics: Topics, lost: dict[str, str]
    ) -> tuple[str, str]:
        """The reason and the text why the transaction is not whole; empty where it is. `lost` takes events that will
        not come."""
        if one.counts is None:
            return "TransactionPending", "its END has not come"
        if any(tally.counts.get(one.id, 0) > self._expected_events(one, name) for name, tally in tallies.items()):
            one.is_undecided = True  # orders do not say which events came again
        for name, tally in tallies.items():
            wanted, count = self._expected_events(one, name), tally.counts.get(one.id, 0)
            behind = tally.behind.get(one.id)
            if not one.is_undecided and count == wanted:
                continue
            open = self._open_partition(one, name, tally, topics)
            later = f"{open} has no event of a later transaction yet: change a row that is there"
            if open and one.is_undecided:
                return "TransactionUndecided", f"{UNDECIDED}. {later}"
            if one.is_undecided and behind is None:
                continue
            text = f"table {name} has {count} of its {wanted} events"
            if behind is not None:
                text = f"{self._describe_position(name, *behind)} has events of it {_REFUSED}"
            if open:
                return "TransactionPending", f"{text}; {later}, if they do not come"
            if not self._is_skipped(name):
                how = f"set onGap: skip of table {name} to go on without them, or remove the table"
                return "TransactionIncomplete", f"{text}, and events of later ones: the others are lost; {how}"
            lost[name] = f"transaction {one.id}: {text}"
        return "", ""

    def _open_partition(self, one: PendingTransaction, name: str, tally: Tally, topics: Topics) -> str:
        """A partition of the table without an event of a later transaction, which may still get events of this one;
        empty without one. A later transaction began behind the END of this one."""
        table, rank = self._tables[name], one.ended_rank
        assert rank is not None
        for partition in sorted(table.offsets):
            if tally.latest.get(partition, -1) <= rank:
                return f"partition {partition} of topic {table.table.topic}"
        try:
            unread = sorted(set(table.described(topics).partitions) - table.offsets.keys())
        except TableStopped as error:
            return f"a partition of topic {table.table.topic} ({error})"
        return f"partition {unread[0]} of topic {table.table.topic}" if unread else ""

    def _expected_events(self, one: PendingTransaction, name: str) -> int:
        """The number of the table's events that the end of the transaction names."""
        topic, counts = self._tables[name].table.topic, one.counts or {}
        return sum(count for table, count in counts.items() if is_of(table, topic, self._prefix))

    def _take_members(self, entries: Mapping[Entry, str]) -> None:
        members = set(json.loads(entries.get(_MEMBERS, "[]")))
        self.members = frozenset(name for name in self._tables if self._bound_as(name) in members)

    def _bound_as(self, name: str) -> str:
        return self._names.get(name, name)
