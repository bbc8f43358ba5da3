"""Records of one table that were read and that no binding has: some of them are of transactions that are pending.

    partition 0:   7 7 7 │ 8 8 │ 7 7 │ 9        runs of records of one transaction; 7 has come again
    partition 1:   7 │ 8 │ 9 9
                     └ cut after 7

The records are in memory up to a bound. Past it they are dropped, and read again once it is known where the cut is; the
runs and the numbers of events stay, so that a transaction may be larger than memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.stop import OTHER_ORIGIN, SEQUENCE_MISSING
from tidemark_replica.storage.kafka.transactions.event_positions import Arrival, EventPositions, LastEvent
from tidemark_replica.storage.kafka.transactions.metadata import (
    MarksOf,
    NoSequence,
    NotUnderstood,
    TransactionMark,
    is_of,
    json_marks,
)

RUNS_MAX = 200_000
"""Runs that are remembered, of all tables and partitions; a partition with its share of them is not read on."""
POSITIONS_PER_RUN = 20
"""Positions of events that are remembered, for each run that may be; of a transaction with more it is not known which
of its events come again, but by their orders."""
_MEND = ". Mend the connector, remove the table, and add one of another name"
_SEQUENCE = (
    ". Let the connector have its own sourceinfo.struct.maker, and no transformation that changes the field source;"
    " then remove the table, and add one of another name"
)


class Fate(Enum):
    """The fate of a run."""

    TAKEN = 0
    DROPPED = 1
    WAITS = 2


@dataclass(slots=True)
class EventRun:
    """Records of one transaction, from the offset `begin` of a partition to the next run; orders and positions grow
    within it. `id` empty: of no transaction. `position`: of its first event. `fresh`: the offset of the first event
    with a greater order than all before it in the partition, None without one. `count`: how many there are. `first`:
    the offset of the first event that does not come again, by its position. `late`: of the first one that is late (see
    `Arrival`)."""

    id: str
    partition: int
    begin: int
    position: int = 0
    commit_before: int | None = None
    fresh: int | None = None
    count: int = 0
    first: int | None = None
    late: int | None = None


@dataclass
class _Seen:
    """Events of one transaction, by partition; all bytes."""

    partitions: dict[int, EventPositions] = field(default_factory=dict)
    bytes: int = 0


@dataclass
class Tally:
    """The sum of the runs of a table. `counts`: by transaction, its events that are before all events of later
    ones in their partition, without those that came again. `behind`: by transaction, the partition and the offset of
    an event that is behind later ones, and is none that came again. `latest`: by partition, the greatest rank."""

    counts: dict[str, int] = field(default_factory=dict)
    behind: dict[str, tuple[int, int]] = field(default_factory=dict)
    latest: dict[int, int] = field(default_factory=dict)


FateOf = Callable[[EventRun, int], Fate]
"""The fate of a run, given the greatest rank before it in its partition."""
RankOf = Callable[[EventRun], int]
"""The rank of the run's transaction if it is pending, a greater one than of all that have ended if it is later than
these; -1 of any other one."""
FirstOf = Callable[[EventRun], int | None]
"""The offset of the run's first record that counts; None where none does."""
Recall = Callable[[str, int, int], Sequence[int] | None]
"""The positions of a transaction's events that are bound in a partition, given the position of an event: none where
they need not be known, None where they are not known."""


class ReadAhead:
    """The records that the reader of a topic is ahead of the bindings. `prefix`: of the connector's topics;
    `bytes_max`: of records in memory. `runs_max`: of all partitions. `marks_of`: reads their marks. `key_frame`: the
    bytes before a key, which name its schema: one key may be written with several."""

    def __init__(
        self,
        topic: str,
        prefix: str,
        bytes_max: int,
        runs_max: int,
        recall: Recall,
        marks_of: MarksOf = json_marks,
        key_frame: int = 0,
    ) -> None:
        self._marks_of, self._key_frame = marks_of, key_frame
        self._topic, self._prefix, self._bytes_max, self._runs_max = topic, prefix, bytes_max, runs_max
        self._recall, self._positions = recall, 0
        self._records: list[Any] = []
        self._runs: dict[int, list[EventRun]] = {}
        self._seen: dict[str, _Seen] = {}
        self._last: dict[int, LastEvent] = {}
        """By partition, the last event."""
        self._tables = set[str]()
        """The names of tables that are those of the topic."""
        self.bytes = 0
        """The bytes of the records that were read and not taken."""
        self.is_over = False
        """Whether records were dropped."""

    @property
    def is_full(self) -> bool:
        return self.bytes >= self._bytes_max

    def crowded(self, partitions: int) -> set[int]:
        """The partitions with as many runs as are remembered, where there are so many partitions."""
        return {p for p, runs in self._runs.items() if len(runs) >= max(1, self._runs_max // max(1, partitions))}

    def add(self, records: Sequence[Any], watermark: int) -> None:
        """Takes records that were read next. Raises TableStopped where an event is not one of the topic's table by
        PostgreSQL's connector, has no transaction although those before `watermark` have one, or has no sequence.
        Raises RegistryAway, and then has none of them."""
        marks = self._marks_of([record.value() for record in records])
        if self.is_full:
            self.is_over, self._records = True, []
        for record, mark in zip(records, marks, strict=True):
            size = _size(record)
            self.bytes += size
            if record.value() is not None:
                self._mark(record, self._checked(record, mark, watermark), size)
        if not self.is_over:
            self._records += records

    def count(self, id: str) -> int:
        """The events of the transaction that were read, without those that came again."""
        return sum(events.count for events in self._seen.get(id, _Seen()).partitions.values())

    def positions(self, id: str) -> dict[int, Sequence[int]] | None:
        """By partition, the positions of the transaction's events that were read; None where they are not known."""
        of = self._seen.get(id, _Seen()).partitions
        found: dict[int, Sequence[int]] = {p: each.positions for p, each in of.items() if each.positions is not None}
        return found if len(found) == len(of) else None

    def bytes_of(self, id: str) -> int:
        """The bytes of the transaction's events that were read."""
        return self._seen.get(id, _Seen()).bytes

    @property
    def partitions(self) -> Collection[int]:
        """The partitions of which records were read."""
        return self._runs.keys()

    def front(self, partition: int, at: int, fate_of: FateOf) -> int:
        """The number of the first run of the partition, from `at` on, that waits."""
        runs = self._runs.get(partition, ())
        while at < len(runs) and fate_of(runs[at], -1) is not Fate.WAITS:
            at += 1
        return at

    def run(self, partition: int, at: int) -> EventRun | None:
        runs = self._runs.get(partition, ())
        return runs[at] if at < len(runs) else None

    def tally(self, rank_of: RankOf) -> Tally:
        found = Tally()
        for partition, runs in self._runs.items():
            top = -1
            for run in runs:
                if (rank := rank_of(run)) < 0:
                    continue
                is_before = rank >= top
                if is_before:
                    found.counts[run.id], top = found.counts.get(run.id, 0) + run.count, rank
                if (offset := run.late if is_before else run.first) is not None:
                    found.behind.setdefault(run.id, (partition, offset))
            found.latest[partition] = top
        return found

    def cut(self, ends: Mapping[int, int], fate_of: FateOf) -> dict[int, int]:
        """By partition, the offset up to which records may be bound. `ends`: the next record to be read."""
        found = {}
        for partition, end in ends.items():
            run = self.run(partition, self.front(partition, 0, fate_of))
            found[partition] = end if run is None else run.begin
        return found

    def take(
        self, cut: Mapping[int, int], fate_of: FateOf, rank_of: RankOf, first_of: FirstOf
    ) -> tuple[list[Any], Callable[[Any], bool]]:
        """The records before the cut, in order, none where they were dropped; and whether one of them counts.
        `first_of`: the offset of the run's first record that counts, None without one. They are given once."""
        begins: dict[int, list[int]] = {}
        counted: dict[int, list[float]] = {}
        for partition, runs in self._runs.items():
            number, top = bisect_right([run.begin for run in runs], cut[partition] - 1), -1
            begins[partition], counted[partition] = [run.begin for run in runs[:number]], []
            for run in runs[:number]:
                is_dropped = fate_of(run, top) is Fate.DROPPED
                first = first_of(run)
                counted[partition].append(float("inf") if is_dropped or first is None else first)
                top = max(top, rank_of(run))
                self._forget(run.id)
            del runs[:number]

        def counts(record: Any) -> bool:
            of, offset = begins.get(record.partition(), []), record.offset()
            at = bisect_right(of, offset) - 1
            return at < 0 or offset >= counted[record.partition()][at]

        taken = [record for record in self._records if record.offset() < cut[record.partition()]]
        self._records = [record for record in self._records if record.offset() >= cut[record.partition()]]
        self.bytes = sum(map(_size, self._records))
        return taken, counts

    def late(self, cut: Mapping[int, int], is_late: Callable[[EventRun], bool]) -> list[EventRun]:
        """The runs before the cut for which `is_late` holds, one of each transaction."""
        runs = (run for partition, found in self._runs.items() for run in found if run.begin < cut[partition])
        return list({run.id: run for run in runs if is_late(run)}.values())

    def _forget(self, id: str) -> None:
        self._positions -= sum(map(len, self._seen.pop(id, _Seen()).partitions.values()))

    def _checked(
        self, record: Any, mark: TransactionMark | NotUnderstood | None, watermark: int
    ) -> TransactionMark | None:
        if isinstance(mark, NoSequence):
            raise self._table_stopped(record, f"{mark}{_SEQUENCE}", SEQUENCE_MISSING)
        if isinstance(mark, NotUnderstood):
            raise self._table_stopped(record, f"{mark}{_MEND}")
        if mark is None:
            return None
        if mark.table not in self._tables:
            if not is_of(mark.table, self._topic, self._prefix):
                raise self._table_stopped(
                    record, f"the event is of table {mark.table}, and the topic's name does not say so{_MEND}"
                )
            self._tables.add(mark.table)
        if not mark.id and watermark and mark.commit_before is not None and mark.commit_before >= watermark:
            text = "the event has no transaction, and those before it have: set provide.transaction.metadata again"
            raise self._table_stopped(record, text + _MEND)
        return mark if mark.id else None

    def _mark(self, record: Any, mark: TransactionMark | None, size: int) -> None:
        partition, offset = record.partition(), record.offset()
        runs = self._runs.setdefault(partition, [])
        last = runs[-1] if runs else None
        if mark is None:
            if last is None or last.id:
                runs.append(EventRun("", partition, offset))
            return
        goes_on = self._goes_on(partition, mark, self._key(record))
        if last is None or not last.id or not goes_on:
            last = EventRun(mark.id, partition, offset, mark.position, mark.commit_before)
            runs.append(last)
        seen = self._seen.setdefault(mark.id, _Seen())
        seen.bytes += size
        events = seen.partitions.get(partition)
        if events is None:
            events = seen.partitions[partition] = EventPositions(self._recall(mark.id, partition, mark.position))
            self._positions += len(events)
        self._count(last, events, mark, record, goes_on)

    def _goes_on(self, partition: int, mark: TransactionMark, key: bytes | None) -> bool:
        last = self._last.get(partition)
        if last is None:
            self._last[partition] = LastEvent(mark, key)
            return False
        return last.is_followed(mark, key)

    def _count(self, run: EventRun, events: EventPositions, mark: TransactionMark, record: Any, goes_on: bool) -> None:
        count, kept, offset = events.count, len(events), record.offset()
        comes = events.add(mark.position, mark.order, goes_on, self._key(record))
        if events.count > count:
            run.count += 1
            run.fresh = offset if run.fresh is None else run.fresh
        if comes is not Arrival.AGAIN:
            run.first = offset if run.first is None else run.first
        if comes is Arrival.LATE:
            run.late = offset if run.late is None else run.late
        self._positions += len(events) - kept
        if self._positions > POSITIONS_PER_RUN * self._runs_max:
            self._positions -= len(events)
            events.forget()

    def _key(self, record: Any) -> bytes | None:
        key: bytes | None = record.key()
        return None if key is None else key[self._key_frame :]

    def _table_stopped(self, record: Any, why: str, reason: str = OTHER_ORIGIN) -> TableStopped:
        """The error of a record with which the table stops."""
        where = f"partition {record.partition()} of topic {self._topic} at offset {record.offset()}"
        return TableStopped(reason, f"{where}: {why}")


def _size(record: Any) -> int:
    return len(record) + len(record.key() or b"")
